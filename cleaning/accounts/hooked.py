"""Recomputes what counters that hook modules (thop, torchinfo) count, to explain differences from the exact count.

`thop` and `torchinfo` take a `CallRecording` (a model's calls) and a pass, and return `Counted`: the parts of the
total. Both counters see the forward pass only. thop (thop/profile.py, vision/calc_func.py, rnn_hooks.py of 0.1.1) knows
modules of exact classes. It counts 1 per multiply-add without bias, 4 per element for normalisation with weights, and
constants for pooling and resizing. torchinfo (torchinfo/layer_info.py of 1.8.0) multiplies the parameters of a module
without children by the batch. For a class with "Conv" in its name it multiplies them by the output's positions, too.
`missed` names the cause for a product without a hook. Other counters share the rule for recurrent modules
(`recurrent`).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from cleaning.accounts.items import Counted, Item, first_tensor, in_and_out, other, product
from results.records.calls import MODULE, Call, CallRecording, ModuleInfo, tensors
from results.records.counts import Operation

CONVOLUTIONS = "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d"

NN = "torch.nn.modules."

Rule = Callable[[ModuleInfo, Call], Iterator[Item]]


def nn(where: str, names: str) -> list[str]:
    """Return the full names of torch.nn classes, for example nn("conv", "Conv1d Conv2d"). where: the submodule of
    torch.nn.modules."""
    return [f"{NN}{where}.{name}" for name in names.split()]


def elements(cause: str, kind: str, output: bool = True) -> Rule:
    """Make a rule that counts 1 per element. output: whether the module's output is counted, else its first input."""

    def rule(_module: ModuleInfo, call: Call) -> Iterator[Item]:
        yield other(call, cause, in_and_out(call)[output].numel, kind)

    return rule


def items(recording: CallRecording, rules: Mapping[str, Rule]) -> Iterator[tuple[int, Item]]:
    """Yield (serial of the module, item) of every call of a module whose exact class has a rule."""
    for call in recording.calls:
        if call.what == MODULE and call.name in rules and call.serial >= 0:
            for item in rules[call.name](recording.modules[call.serial], call):
                yield call.serial, item


def visits(recording: CallRecording, closed: Collection[str] = ()) -> Counter[int]:
    """Count how often a walk from the root reaches each serial: once per parent. closed: classes whose children it
    skips."""
    seen: Counter[int] = Counter()

    def walk(serial: int) -> None:
        seen[serial] += 1
        module = recording.modules[serial]
        if module.type not in closed:
            for _, child in module.children:
                walk(child)

    walk(0)
    return seen


def multiplied(counted: Iterator[tuple[int, Item]], times: Mapping[int, int]) -> Iterator[Item]:
    """Yield the items; for modules that a walk visits more than once, or never, also the difference under a separate
    cause."""
    for serial, item in counted:
        yield item
        more = times.get(serial, 0) - 1
        if more and item.native:
            yield Item(more * item.native, "module_used_twice", item.kind, item.module)


def taps(module: ModuleInfo) -> int:
    """Return a convolution's multiply-adds per position."""
    settings = module.settings
    return int(
        prod(settings["kernel_size"]) * settings["in_channels"] * (settings["out_channels"] // settings["groups"])
    )


def fault_of_convolution(module: ModuleInfo, call: Call, otherwise: str = "") -> str:
    """Explain why a convolution module's number is not its product's: its input has no batch, or else `otherwise`."""
    inputs, kernel = first_tensor(call.arguments), module.settings.get("kernel_size")
    bare = inputs is not None and isinstance(kernel, tuple) and len(inputs.shape) == len(kernel) + 1
    return "without_batch" if bare else otherwise


def missed(recording: CallRecording, known: Collection[str]) -> Callable[[Operation], str]:
    """Return a function that gives the cause for a product without a hook. known: the classes with a rule."""

    def why(operation: Operation) -> str:
        module = module_around(recording, operation)
        if module is not None and module.type == f"{NN}activation.MultiheadAttention":
            return "attention_module_not_seen"
        if operation.kind == "attention":
            return "attention_not_seen"
        if module is not None and module.type not in known and any(base in known for base in module.bases):
            return "subclass_not_seen"
        return "functional_not_seen"

    return missed_recurrent(recording, why)


def missed_recurrent(recording: CallRecording, otherwise: Callable[[Operation], str]) -> Callable[[Operation], str]:
    """Return a function that gives the cause for a product in a recurrent layer, which may run as single products, and
    `otherwise` for any other."""

    def why(operation: Operation) -> str:
        module = module_around(recording, operation)
        inside = module is not None and f"{NN}rnn.RNNBase" in module.bases
        return "recurrent_not_seen" if inside or operation.kind == "recurrent" else otherwise(operation)

    return why


def module_around(recording: CallRecording, operation: Operation) -> ModuleInfo | None:
    """Return the innermost module in which a forward operation ran; None: in none."""
    after = bisect_right(recording.calls, operation.index, key=lambda call: call.first)
    for call in reversed(recording.calls[:after]):
        if call.what == MODULE and call.last > operation.index:
            return None if call.serial < 0 else recording.modules[call.serial]
    return None


GATES = {"RNN": 1, "RNNCell": 1, "GRU": 3, "GRUCell": 3, "LSTM": 4, "LSTMCell": 4}
"""Class → rows of its weights in multiples of the hidden size."""


@dataclass(frozen=True)
class Recurrent:
    """One call as counters know it. state: width of what a step hands to the next. widths: input width of each layer,
    first to last, one direction. rows: what each matrix is multiplied by: steps × batch, from the input's first sizes,
    even of packed sequences."""

    gates: int
    hidden: int
    state: int
    widths: tuple[int, ...]
    bias: bool
    directions: int
    rows: int

    @property
    def weights(self) -> Iterator[tuple[int, int]]:
        """Yield (multiply-adds with the input, with the state) of one step, for each layer of one direction."""
        for width in self.widths:
            yield self.gates * self.hidden * width, self.gates * self.hidden * self.state

    @property
    def scalars(self) -> int:
        """Return the scalar arithmetic of one step that DeepSpeed and ptflops count for a recurrent module, biases
        included."""
        per_unit = {1: 1, 3: 7, 4: 10}[self.gates] + (2 * self.gates if self.bias else 0)
        return len(self.widths) * self.hidden * per_unit


def read(module: ModuleInfo, call: Call) -> Recurrent:
    """Read a call of torch.nn.RNN, GRU, LSTM or one of their cells."""
    settings = module.settings
    hidden, directions = int(settings["hidden_size"]), 2 if settings.get("bidirectional") else 1
    layers = int(settings.get("num_layers", 1))
    state = int(settings.get("proj_size", 0)) or hidden
    sizes = next(tensors(call.arguments)).shape
    widths = (int(settings["input_size"]), *[state * directions] * (layers - 1))
    return Recurrent(
        gates=GATES[module.class_name],
        hidden=hidden,
        state=state,
        widths=widths,
        bias=bool(settings.get("bias", True)),
        directions=directions,
        rows=sizes[0] if module.class_name.endswith("Cell") else prod(sizes[:2]),
    )


RECURRENT = nn("rnn", "RNN GRU LSTM RNNCell GRUCell LSTMCell")


def recurrent(flop_per_multiply_add: int) -> Rule:
    """Make the rule that counts weights once a step, both directions as twice the forward one, and the gates' scalars;
    at 2 FLOP per multiply-add (DeepSpeed, calflops), less one per gate for each matrix."""

    def rule(module: ModuleInfo, call: Call) -> Iterator[Item]:
        layers = read(module, call)
        times = layers.rows * layers.directions
        macs = times * sum(map(sum, layers.weights))
        yield product(call, flop_per_multiply_add * macs, "recurrent_steps", "recurrent")
        less = 2 * layers.gates * layers.hidden * len(layers.widths) if flop_per_multiply_add == 2 else 0
        yield other(call, "gates_counted", times * (layers.scalars - less), "recurrent")

    return rule


RESIZED = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}


def _convolution(module: ModuleInfo, call: Call) -> Iterator[Item]:
    inputs, output = in_and_out(call)
    taps = inputs.shape[1] // int(module.settings["groups"]) * prod(module.parameters["weight"][2:])
    fault = fault_of_convolution(module, call, "transposed_at_output")
    yield product(call, output.numel * taps, fault, "convolution")


def _linear(module: ModuleInfo, call: Call) -> Iterator[Item]:
    yield product(call, int(module.settings["in_features"]) * in_and_out(call)[1].numel)


def _norm(module: ModuleInfo, call: Call) -> Iterator[Item]:
    affine = module.settings.get("affine") or module.settings.get("elementwise_affine")
    yield other(call, "normalization_counted", in_and_out(call)[0].numel * (4 if affine else 2), "normalization")


def _softmax(module: ModuleInfo, call: Call) -> Iterator[Item]:
    inputs, _ = in_and_out(call)
    width = inputs.shape[int(module.settings["dim"])]
    yield other(call, "softmax_counted", inputs.numel // width * (3 * width - 1), "softmax")


def _adaptive(_module: ModuleInfo, call: Call) -> Iterator[Item]:
    inputs, output = in_and_out(call)
    window = prod(wide / narrow for wide, narrow in zip(inputs.shape[2:], output.shape[2:], strict=True))
    yield other(call, "pooling_counted", int((window + 1) * output.numel), "pooling")


def _upsample(module: ModuleInfo, call: Call) -> Iterator[Item]:
    per_element = RESIZED.get(str(module.settings.get("mode")), 0)
    yield other(call, "resizing_counted", per_element * in_and_out(call)[1].numel, "pooling")


def _recurrent(module: ModuleInfo, call: Call) -> Iterator[Item]:
    layers = read(module, call)
    times, packed = layers.rows * layers.directions, call.arguments[0]
    if isinstance(packed, tuple):  # as if all sequences had the length of the longest
        *_, state = tensors(call.output)
        times = int(packed[1].numel * state.shape[1]) * layers.directions
    widths = [layers.widths[0]] + [layers.hidden * layers.directions] * (len(layers.widths) - 1)  # no projection
    macs = sum(layers.gates * layers.hidden * (width + layers.hidden) for width in widths)
    yield product(call, times * macs, fault="recurrent_steps", kind="recurrent")
    sums = layers.gates * layers.hidden * (3 if layers.bias else 1)
    after = {1: 0, 3: 4 * layers.hidden, 4: 4 * layers.hidden}[layers.gates]
    yield other(call, "gates_counted", times * len(layers.widths) * (sums + after), "recurrent")


THOP: dict[str, Rule] = {
    **dict.fromkeys(nn("conv", CONVOLUTIONS), _convolution),
    **dict.fromkeys(nn("linear", "Linear"), _linear),
    **dict.fromkeys(nn("batchnorm", "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm"), _norm),
    **dict.fromkeys(nn("normalization", "LayerNorm"), _norm),
    **dict.fromkeys(nn("instancenorm", "InstanceNorm1d InstanceNorm2d InstanceNorm3d"), _norm),
    **dict.fromkeys(nn("activation", "PReLU"), elements("activation_counted", "activation", output=False)),
    **dict.fromkeys(nn("activation", "Softmax"), _softmax),
    **dict.fromkeys(nn("pooling", "AvgPool1d AvgPool2d AvgPool3d"), elements("pooling_counted", "pooling")),
    **dict.fromkeys(nn("pooling", "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"), _adaptive),
    **dict.fromkeys(nn("upsampling", "Upsample UpsamplingBilinear2d UpsamplingNearest2d"), _upsample),
    **dict.fromkeys(RECURRENT, _recurrent),
}
"""Class → rule. Classes whose rule is 0 (ReLU, MaxPool2d, Dropout, …) are left out: a walk finds nothing in them."""


def thop(recording: CallRecording, phase: str) -> Counted:
    """Return thop's items of one pass. A module is hooked once per parent, and its count is added as often, but the
    second walk, which adds, does not enter modules that have a rule."""
    hooked, added = visits(recording), visits(recording, THOP)
    times = {serial: hooked[serial] * added[serial] for serial in hooked}
    return list(multiplied(items(recording, THOP), times)), missed(recording, THOP)


def torchinfo(recording: CallRecording, phase: str) -> Counted:
    """Return torchinfo's items of one pass: of every call of a module without children."""
    counted: list[Item] = []
    for call in recording.calls:
        if call.what == MODULE and call.serial >= 0 and not recording.modules[call.serial].children:
            counted += _leaf(recording.modules[call.serial], call)
    return counted, missed(recording, ())


def _leaf(module: ModuleInfo, call: Call) -> Iterator[Item]:
    output = first_tensor(call.output)
    sizes = () if output is None else output.shape
    for name, shape in module.parameters.items():
        numel = prod(shape)
        if name in ("weight", "bias"):
            positions = prod(sizes[:1] + sizes[2:]) if "Conv" in module.class_name else sizes[0]
        elif "weight" in name or "bias" in name:
            positions = prod(sizes[:2])
        else:
            continue
        yield _item(module, call, name, numel * positions)


def _item(module: ModuleInfo, call: Call, name: str, native: int) -> Item:
    where = module.type.removeprefix(NN) if module.type.startswith(NN) else ""
    if where.startswith(("batchnorm.", "normalization.", "instancenorm.")):
        return other(call, "normalization_counted", native, "normalization")
    if where == "sparse.Embedding":
        return other(call, "embedding_as_product", native, "embedding")
    if "bias" in name and where.startswith(("conv.", "linear.", "rnn.")):
        return other(call, "bias_counted", native, "matmul")
    if where.startswith("rnn."):
        return product(call, native, "recurrent_steps", "recurrent")
    if where.startswith("conv."):
        return product(call, native, fault_of_convolution(module, call, "transposed_at_output"), "convolution")
    if where in ("linear.Linear", "linear.NonDynamicallyQuantizableLinear"):
        return product(call, native, "positions_ignored")
    if "Conv" in module.class_name and name == "weight":
        return product(call, native, "name_taken_for_convolution")
    return other(call, "parameters_as_operations", native, "elementwise")
