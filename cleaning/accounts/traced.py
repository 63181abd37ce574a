"""Recomputes what fvcore and pthflops count, which read a graph of the forward pass, to explain their differences.

Both functions take a `CallRecording` (a model's calls) and a pass, and return `Counted`: the parts of the total.
Neither graph has what is computed from constants only, or results that nothing uses; the recorded storages show both.
fvcore (fvcore/nn/flop_count.py, jit_handles.py of 0.1.5) counts the outermost operators of torch.jit's graph, which are
the recorded Python functions. It counts 1 per multiply-add, and elements for normalisation, adaptive pooling, resizing
and grid sampling. pthflops (pthflops/ops_fx.py of 0.4.2) counts 1 per multiply-add in torch.fx's graph. Its nodes are
torch.nn's modules except Sequential, and functions that other modules call on a traced tensor (add, mul and matmul
count).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

from cleaning.accounts import hooked, wrapped
from cleaning.accounts.hooked import NN
from cleaning.accounts.items import Counted, Item, bound, first_tensor, in_and_out, missed_by, other, product
from results.records.calls import APPLIED, FUNCTION, MODULE, Call, CallRecording, ModuleInfo, Sized, tensors
from results.records.counts import Operation


def fvcore(recording: CallRecording, phase: str) -> Counted:
    """Return fvcore's items of one pass."""
    alive = used(recording)
    calls = tuple(call for call in recording.calls if _is_seen(recording, call, alive))
    counted = [item for call in calls if _is_node(recording, call) for item in FVCORE[call.name](call)]
    counted += [item for _, item in hooked.items(replace(recording, calls=calls), CELLS)]
    return counted, _missed(recording, alive)


def used(recording: CallRecording) -> set[int]:
    """Return the indices of the forward operations whose results reach an output, except views, which compute
    nothing."""
    wanted, indices = set(recording.results), set()
    for operation in reversed(recording.operations):
        if operation.phase == "forward" and operation.kind != "view" and not wanted.isdisjoint(operation.writes):
            wanted.update(operation.reads)
            indices.add(operation.index)
    return indices


def _is_seen(recording: CallRecording, call: Call, alive: set[int]) -> bool:
    """Return whether a call is in the graph: unused ones are left out, and a function with its own backward pass is one
    node, whatever it calls."""
    operations = recording.operations[call.first : call.last]
    if alive.isdisjoint(range(call.first, call.last)) and any(operation.kind != "view" for operation in operations):
        return False
    return all(around.name != APPLIED for around in recording.around(call))


def _missed(recording: CallRecording, alive: set[int]) -> Callable[[Operation], str]:
    applied = {index for call in recording.calls if call.name == APPLIED for index in range(call.first, call.last)}
    without = {"attention": "attention_not_seen", "convolution": "string_padding_not_seen"}
    otherwise = hooked.missed_recurrent(recording, missed_by(without, "operator_without_rule"))

    def why(operation: Operation) -> str:
        if operation.index not in alive:
            return "result_not_used"
        return "custom_function_not_seen" if operation.index in applied else otherwise(operation)

    return why


def _is_node(recording: CallRecording, call: Call) -> bool:
    """Return whether a call is a function with a handle, and not the same function one level below (F.batch_norm,
    torch's)."""
    if call.what != FUNCTION or call.name not in FVCORE:
        return False
    bare = call.name.rpartition(".")[2]
    above = next(recording.around(call), None)
    return above is None or above.name not in FVCORE or above.name.rpartition(".")[2] != bare


def _halved(rule: wrapped.Rule) -> wrapped.Rule:
    """Convert a rule's products to multiply-adds, without the biases that it adds."""

    def reader(call: Call) -> Iterator[Item]:
        yield from (replace(item, native=item.native // 2) for item in rule(call) if not item.cause)

    return reader


def _convolution(call: Call) -> Iterator[Item]:
    arguments, output = bound(call, "input weight bias stride padding"), first_tensor(call.output)
    if output is not None and not isinstance(arguments.get("padding", 0), str):
        yield product(call, output.numel * prod(arguments["weight"].shape[1:]), kind="convolution")


def _transposed(call: Call) -> Iterator[Item]:
    arguments = bound(call, "input weight")
    yield product(call, arguments["input"].numel * prod(arguments["weight"].shape[1:]), kind="convolution")


def _einsum(call: Call) -> Iterator[Item]:
    equation, operands = call.arguments[0], list(tensors(call.arguments[1:]))
    if len(operands) == 1:
        yield other(call, "contraction_of_one", _contraction(equation, operands), "matmul")
    else:
        yield product(call, _contraction(equation, operands), fault="rounded_path")


def _contraction(equation: str, operands: list[Sized]) -> int:
    """Return a contraction's multiply-adds as numpy prints them: half of an "optimized FLOP count" of four digits."""
    bare = "".join(equation.split())
    letters = {letter: chr(97 + index) for index, letter in enumerate(dict.fromkeys(filter(str.isalpha, bare)))}
    bare = "".join(letters.get(letter, letter) for letter in bare)
    if bare in ("abc,abd->acd", "abc,adc->adb"):
        (n, second, third), last = operands[0].shape, operands[-1].shape
        return int(n * second * third * (last[-1] if bare.endswith("acd") else last[1]))
    return int(wrapped.printed_flop(bare, operands) // 2)


def _resizing(call: Call) -> Iterator[Item]:
    arguments = bound(call, "input size scale_factor mode align_corners recompute_scale_factor antialias")
    per_element = {"nearest": 1, "bilinear": 4}.get(arguments.get("mode", "nearest"), 0)
    output = first_tensor(call.output)
    if output is not None and len(output.shape) == 4 and per_element and not arguments.get("antialias"):
        yield other(call, "resizing_counted", per_element * output.numel, "pooling")


def _sampling(call: Call) -> Iterator[Item]:
    output = first_tensor(call.output)
    if output is not None:
        yield other(call, "sampling_counted", 4 * output.numel, "pooling")


def _cell(module: ModuleInfo, call: Call) -> Iterator[Item]:
    """Count a cell as the two linear layers that it is traced as."""
    layer = hooked.read(module, call)
    yield product(call, layer.rows * sum(map(sum, layer.weights)))


CELLS: dict[str, hooked.Rule] = dict.fromkeys(hooked.nn("rnn", "RNNCell GRUCell LSTMCell"), _cell)

FVCORE: dict[str, wrapped.Rule] = {
    "F.linear": _halved(wrapped.linear),
    **{f"{namespace}.conv{rest}": _convolution for namespace in ("F", "torch") for rest in ("1d", "2d", "3d")},
    **{f"{namespace}.conv_transpose{rest}": _transposed for namespace in ("F", "torch") for rest in ("1d", "2d", "3d")},
    **dict.fromkeys(("torch.matmul", "Tensor.matmul", "Tensor.__matmul__"), _halved(wrapped.matmul)),
    **dict.fromkeys(("torch.mm", "Tensor.mm", "torch.bmm", "Tensor.bmm"), _halved(wrapped.matmul)),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm"), _halved(wrapped.addmm)),
    "torch.einsum": _einsum,
    "F.batch_norm": wrapped.norm("input running_mean running_var weight bias training", in_training=False),
    "torch.batch_norm": wrapped.norm("input weight bias running_mean running_var training", in_training=False),
    "F.instance_norm": wrapped.norm("input running_mean running_var weight"),
    **dict.fromkeys(
        ("F.layer_norm", "torch.layer_norm", "F.group_norm", "torch.group_norm"), wrapped.norm("input shape weight")
    ),
    "F.adaptive_avg_pool2d": wrapped.of_input("pooling_counted", "pooling"),
    "F.interpolate": _resizing,
    "F.grid_sample": _sampling,
}


ROOT = 0
"""Serial of the model itself, which torch.fx traces into whatever its class."""

MATMUL = ("torch.matmul", "Tensor.__matmul__", "Tensor.__rmatmul__")
ELEMENTWISE = {
    **dict.fromkeys(("torch.add", "Tensor.__add__", "Tensor.__radd__", "Tensor.__iadd__"), "addition_counted"),
    **dict.fromkeys(("torch.mul", "Tensor.__mul__", "Tensor.__rmul__", "Tensor.__imul__"), "multiplication_counted"),
}


class DataFlow:
    """Tracks which tensors depend on the inputs, the weights or a leaf module. Calls must be queried in order."""

    def __init__(self, recording: CallRecording) -> None:
        self._operations = recording.operations
        self._known = set(recording.sources)
        self._position = self._leaf_until = 0

    def leaf(self, call: Call) -> None:
        """Mark this module's results as dependent on it."""
        self._reach(call.first)
        self._leaf_until = max(self._leaf_until, call.last)

    def follows(self, call: Call, arguments: Any) -> bool:
        """Return whether any tensor among these arguments of a call is dependent."""
        self._reach(call.first)
        return any(tensor.storage in self._known for tensor in tensors(arguments))

    def _reach(self, index: int) -> None:
        while self._position < min(index, len(self._operations)):
            operation = self._operations[self._position]
            if self._position < self._leaf_until or not self._known.isdisjoint(operation.reads):
                self._known.update(operation.writes)
            self._position += 1


def pthflops(recording: CallRecording, phase: str) -> Counted:
    """Return pthflops' items of one pass."""
    leaf: Call | None = None  # the latest module or function that nothing is seen inside of
    constant: set[int] = set()
    counted: list[Item] = []
    flow = DataFlow(recording)
    for call in recording.calls:
        if leaf is not None and any(around.index == leaf.index for around in recording.around(call)):
            continue
        if call.what == MODULE:
            module = recording.modules[call.serial]
            is_sequential = f"{NN}container.Sequential" in (module.type, *module.bases)
            if (module.type.startswith(("torch.nn.", "torch.ao.nn.")) and not is_sequential) and call.serial != ROOT:
                leaf = call
                flow.leaf(call)
                rule = next((PTHFLOPS[name] for name in (module.type, *module.bases) if name in PTHFLOPS), None)
                has_tensors = first_tensor(call.arguments) is not None and first_tensor(call.output) is not None
                if rule is not None and has_tensors:
                    counted += rule(module, call)
        elif not flow.follows(call, (call.arguments, call.keywords)):
            constant.update(range(call.first, call.last))
        elif not call.name.startswith("einops.") and call.name != APPLIED:  # those are looked into
            leaf = call
            if not call.name.startswith("Tensor.__") or flow.follows(call, call.arguments[:1]):  # else it is a method
                counted += _function(call)
    otherwise = hooked.missed(recording, PTHFLOPS)
    return counted, lambda operation: "constants_folded" if operation.index in constant else otherwise(operation)


def _convolution_module(module: ModuleInfo, call: Call) -> Iterator[Item]:
    _, output = in_and_out(call)
    positions = output.shape[0] * prod(output.shape[2:])
    fault = hooked.fault_of_convolution(module, call, "transposed_at_output")
    yield product(call, hooked.taps(module) * positions, fault, "convolution")
    if "bias" in module.parameters:
        yield other(call, "bias_counted", module.settings["out_channels"] * positions, "convolution")


def _linear_module(module: ModuleInfo, call: Call) -> Iterator[Item]:
    inputs, output = in_and_out(call)
    yield product(call, inputs.numel * output.shape[-1])
    if "bias" in module.parameters:
        yield other(call, "bias_counted", output.shape[-1], "matmul")


def _twice(cause: str, kind: str) -> hooked.Rule:
    """Make a rule that counts 2 per element of the output."""
    return lambda _, call: iter([other(call, cause, 2 * in_and_out(call)[1].numel, kind)])


def _pool_module(module: ModuleInfo, call: Call) -> Iterator[Item]:
    inputs, output = in_and_out(call)
    window, kernel = inputs.shape[-2] * inputs.shape[-1], module.settings.get("kernel_size")
    if kernel is not None:
        window = int(kernel) ** (len(output.shape) - 2) if isinstance(kernel, int) else prod(kernel)
        window -= f"{NN}pooling._MaxPoolNd" in module.bases
    yield other(call, "pooling_counted", window * output.numel, "pooling")


PTHFLOPS: dict[str, hooked.Rule] = {
    f"{NN}conv._ConvNd": _convolution_module,
    f"{NN}activation.ReLU": _twice("activation_counted", "activation"),
    f"{NN}batchnorm._BatchNorm": _twice("normalization_counted", "normalization"),
    f"{NN}pooling._MaxPoolNd": _pool_module,
    f"{NN}pooling._AvgPoolNd": _pool_module,
    f"{NN}pooling._AdaptiveAvgPoolNd": _pool_module,
    f"{NN}linear.Linear": _linear_module,
}
"""Class → rule; derived classes have the same."""


def _function(call: Call) -> Iterator[Item]:
    output = first_tensor(call.output)
    if output is not None and call.name in MATMUL:
        left = list(tensors(call.arguments))[call.name == "Tensor.__rmatmul__"]
        yield product(call, left.numel * output.shape[-1], "broadcast_from_first")
    elif output is not None and call.name in ELEMENTWISE:
        yield other(call, ELEMENTWISE[call.name], output.numel * len(call.arguments), "elementwise")
