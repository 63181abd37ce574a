"""fvcore's FlopCountAnalysis by its handles: the traced graph's outermost operators, 1 a multiply-add, and elements for
normalisation, adaptive pooling, resizing and grid sampling (fvcore/nn/flop_count.py and jit_handles.py of 0.1.5).

A node of its graph is a function called from Python, so that the recorded functions are its nodes. Forward only.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

from cleaning.accounts.vocabulary import module_hooks
from cleaning.accounts.vocabulary.items import Counted, Item, bound, first_tensor, missed_by, other, product, used
from cleaning.accounts.vocabulary.patched_functions import printed_flop
from results.records.counts import APPLIED, FUNCTION, Call, CallRecording, ModuleInfo, Operation, Sized, tensors

UNIT = "mac"

MULTIPLICATIONS = ["torch.matmul", "Tensor.matmul", "Tensor.__matmul__"]
CONVOLUTIONS = [f"{place}.conv{rest}" for place in ("F", "torch") for rest in ("1d", "2d", "3d")]
TRANSPOSED = [f"{place}.conv_transpose{rest}" for place in ("F", "torch") for rest in ("1d", "2d", "3d")]

Reader = Callable[[Call], Iterator[Item]]


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass."""
    alive = used(recording)
    calls = tuple(call for call in recording.calls if _is_seen(recording, call, alive))
    found = [item for call in calls if _is_node(recording, call) for item in READERS[call.name](call)]
    found += [item for _, item in module_hooks.items(replace(recording, calls=calls), CELLS)]
    return found, _missed(recording, alive)


def _is_seen(recording: CallRecording, call: Call, alive: set[int]) -> bool:
    """Whether it is in the graph: what nothing uses is left out, and a function with a backward pass of its own is one
    node, whatever it calls."""
    under = recording.operations[call.first : call.last]
    if alive.isdisjoint(range(call.first, call.last)) and any(operation.kind != "view" for operation in under):
        return False
    return all(around.name != APPLIED for around in recording.around(call))


def _missed(recording: CallRecording, alive: set[int]) -> Callable[[Operation], str]:
    applied = {index for call in recording.calls if call.name == APPLIED for index in range(call.first, call.last)}
    without = {"attention": "attention_not_seen", "convolution": "string_padding_not_seen"}
    otherwise = module_hooks.missed_recurrent(recording, missed_by(without, "operator_without_rule"))

    def why(operation: Operation) -> str:
        if operation.index not in alive:
            return "result_not_used"
        return "custom_function_not_seen" if operation.index in applied else otherwise(operation)

    return why


def _is_node(recording: CallRecording, call: Call) -> bool:
    """Whether it is a function with a handle, and not the same function one level below (F.batch_norm, torch's)."""
    if call.what != FUNCTION or call.name not in READERS:
        return False
    bare = call.name.rpartition(".")[2]
    above = next(recording.around(call), None)
    return above is None or above.name not in READERS or above.name.rpartition(".")[2] != bare


def _linear(call: Call) -> Iterator[Item]:
    given = bound(call, "input weight bias")
    yield product(call, given["input"].numel * given["weight"].shape[0])


def _convolution(call: Call) -> Iterator[Item]:
    given, output = bound(call, "input weight bias stride padding"), first_tensor(call.output)
    if output is not None and not isinstance(given.get("padding", 0), str):
        yield product(call, output.numel * prod(given["weight"].shape[1:]), kind="convolution")


def _transposed(call: Call) -> Iterator[Item]:
    given = bound(call, "input weight")
    yield product(call, given["input"].numel * prod(given["weight"].shape[1:]), kind="convolution")


def _matmul(call: Call) -> Iterator[Item]:
    left, right = list(tensors(call.arguments))[:2]
    yield product(call, left.numel * right.shape[-1], fault="broadcast_from_first")


def _mm(call: Call) -> Iterator[Item]:
    left, right = list(tensors((call.arguments, call.keywords)))[:2]
    yield product(call, left.numel * right.shape[-1])


def _addmm(call: Call) -> Iterator[Item]:
    _, left, right = list(tensors((call.arguments, call.keywords)))[:3]
    yield product(call, left.numel * right.shape[-1])


def _einsum(call: Call) -> Iterator[Item]:
    equation, operands = call.arguments[0], list(tensors(call.arguments[1:]))
    if len(operands) == 1:
        yield other(call, "contraction_of_one", _contraction(equation, operands), "matmul")
    else:
        yield product(call, _contraction(equation, operands), fault="rounded_path")


def _contraction(equation: str, operands: list[Sized]) -> int:
    """Multiply-adds of a contraction as numpy prints them: half of an "optimized FLOP count" of four digits."""
    bare = "".join(equation.split())
    letters = {letter: chr(97 + place) for place, letter in enumerate(dict.fromkeys(filter(str.isalpha, bare)))}
    bare = "".join(letters.get(letter, letter) for letter in bare)
    if bare in ("abc,abd->acd", "abc,adc->adb"):
        (n, second, third), last = operands[0].shape, operands[-1].shape
        return int(n * second * third * (last[-1] if bare.endswith("acd") else last[1]))
    return int(printed_flop(bare, operands) // 2)


def _norm(call: Call, weight: Any, each: int) -> Iterator[Item]:
    given = first_tensor(call.arguments)
    if given is not None:
        yield other(
            call, "normalization_counted", given.numel * (each if weight is not None else each - 1), "normalization"
        )


def _batch_norm(call: Call) -> Iterator[Item]:
    means, weights = "running_mean running_var", "weight bias"
    order = f"{weights} {means}" if call.name.startswith("torch.") else f"{means} {weights}"
    given = bound(call, f"input {order} training")
    return _norm(call, given.get("weight"), 5 if given.get("training") else 2)


def _instance_norm(call: Call) -> Iterator[Item]:
    return _norm(call, bound(call, "input running_mean running_var weight").get("weight"), 5)


def _wide_norm(call: Call) -> Iterator[Item]:
    return _norm(call, bound(call, "input shape weight").get("weight"), 5)


def _pooling(call: Call) -> Iterator[Item]:
    given = first_tensor(call.arguments)
    if given is not None:
        yield other(call, "pooling_counted", given.numel, "pooling")


def _resizing(call: Call) -> Iterator[Item]:
    given = bound(call, "input size scale_factor mode align_corners recompute_scale_factor antialias")
    each = {"nearest": 1, "bilinear": 4}.get(given.get("mode", "nearest"), 0)
    output = first_tensor(call.output)
    if output is not None and len(output.shape) == 4 and each and not given.get("antialias"):
        yield other(call, "resizing_counted", each * output.numel, "pooling")


def _sampling(call: Call) -> Iterator[Item]:
    output = first_tensor(call.output)
    if output is not None:
        yield other(call, "sampling_counted", 4 * output.numel, "pooling")


def _cell(module: ModuleInfo, call: Call) -> Iterator[Item]:
    """A cell is traced as its two linear layers."""
    layer = module_hooks.read(module, call)
    yield product(call, layer.rows * sum(map(sum, layer.weights)))


CELLS: dict[str, module_hooks.Rule] = dict.fromkeys(module_hooks.nn("rnn", "RNNCell GRUCell LSTMCell"), _cell)

READERS: dict[str, Reader] = {
    "F.linear": _linear,
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **dict.fromkeys(TRANSPOSED, _transposed),
    **dict.fromkeys(MULTIPLICATIONS, _matmul),
    **dict.fromkeys(("torch.mm", "Tensor.mm", "torch.bmm", "Tensor.bmm"), _mm),
    **dict.fromkeys(("torch.addmm", "Tensor.addmm"), _addmm),
    "torch.einsum": _einsum,
    **dict.fromkeys(("F.batch_norm", "torch.batch_norm"), _batch_norm),
    "F.instance_norm": _instance_norm,
    **dict.fromkeys(("F.layer_norm", "torch.layer_norm", "F.group_norm", "torch.group_norm"), _wide_norm),
    "F.adaptive_avg_pool2d": _pooling,
    "F.interpolate": _resizing,
    "F.grid_sample": _sampling,
}
