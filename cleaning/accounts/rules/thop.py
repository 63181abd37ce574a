"""thop by its hooks: modules of these very classes, 1 a multiply-add without bias, normalisation 4 an element with
weights, pooling and resizing by constants (thop/profile.py, vision/calc_func.py, rnn_hooks.py of 0.1.1).
Forward only."""

from collections.abc import Iterator
from math import prod

from cleaning.accounts.vocabulary import module_hooks
from cleaning.accounts.vocabulary.items import Counted, Item, in_and_out, other, product
from cleaning.accounts.vocabulary.module_hooks import nn
from results.records.counts import Call, CallRecording, ModuleInfo, tensors

UNIT = "mac"

RESIZED = {"nearest": 1, "linear": 5, "bilinear": 11, "bicubic": 259}


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass. A module is hooked once for each parent, and what its hooks counted is added up as often;
    but the latter walk does not look into modules that have a rule."""
    hooked, added = module_hooks.visits(recording), module_hooks.visits(recording, CLOSED)
    times = {serial: hooked[serial] * added[serial] for serial in hooked}
    return list(module_hooks.multiplied(module_hooks.items(recording, RULES), times)), module_hooks.missed(
        recording, RULES
    )


def _convolution(module: ModuleInfo, call: Call) -> Iterator[Item]:
    given, output = in_and_out(call)
    taps = given.shape[1] // int(module.settings["groups"]) * prod(module.parameters["weight"][2:])
    fault = module_hooks.fault_of_convolution(module, call, "transposed_at_output")
    yield product(call, output.numel * taps, fault, "convolution")


def _linear(module: ModuleInfo, call: Call) -> Iterator[Item]:
    yield product(call, int(module.settings["in_features"]) * in_and_out(call)[1].numel)


def _norm(module: ModuleInfo, call: Call) -> Iterator[Item]:
    affine = module.settings.get("affine") or module.settings.get("elementwise_affine")
    yield other(call, "normalization_counted", in_and_out(call)[0].numel * (4 if affine else 2), "normalization")


def _softmax(module: ModuleInfo, call: Call) -> Iterator[Item]:
    given, _ = in_and_out(call)
    width = given.shape[int(module.settings["dim"])]
    yield other(call, "softmax_counted", given.numel // width * (3 * width - 1), "softmax")


def _adaptive(_module: ModuleInfo, call: Call) -> Iterator[Item]:
    given, output = in_and_out(call)
    window = prod(wide / narrow for wide, narrow in zip(given.shape[2:], output.shape[2:], strict=True))
    yield other(call, "pooling_counted", int((window + 1) * output.numel), "pooling")


def _upsample(module: ModuleInfo, call: Call) -> Iterator[Item]:
    each = RESIZED.get(str(module.settings.get("mode")), 0)
    yield other(call, "resizing_counted", each * in_and_out(call)[1].numel, "pooling")


def _recurrent(module: ModuleInfo, call: Call) -> Iterator[Item]:
    layers = module_hooks.read(module, call)
    times = _rows(call, layers) * layers.directions
    widths = [layers.widths[0]] + [layers.hidden * layers.directions] * (len(layers.widths) - 1)  # no projection
    macs = sum(layers.gates * layers.hidden * (width + layers.hidden) for width in widths)
    yield product(call, times * macs, fault="recurrent_steps", kind="recurrent")
    sums = layers.gates * layers.hidden * (3 if layers.bias else 1)
    after = {1: 0, 3: 4 * layers.hidden, 4: 4 * layers.hidden}[layers.gates]
    yield other(call, "gates_counted", times * len(layers.widths) * (sums + after), "recurrent")


def _rows(call: Call, layers: module_hooks.Recurrent) -> int:
    """Rows that each matrix is multiplied by; of packed sequences, as if all had the length of the longest."""
    packed = call.arguments[0]
    if isinstance(packed, tuple):
        *_, state = tensors(call.output)
        return int(packed[1].numel * state.shape[1])
    return layers.rows


CONVOLUTIONS = nn("conv", "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d")

RULES: dict[str, module_hooks.Rule] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **dict.fromkeys(nn("linear", "Linear"), _linear),
    **dict.fromkeys(nn("batchnorm", "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm"), _norm),
    **dict.fromkeys(nn("normalization", "LayerNorm"), _norm),
    **dict.fromkeys(nn("instancenorm", "InstanceNorm1d InstanceNorm2d InstanceNorm3d"), _norm),
    **dict.fromkeys(nn("activation", "PReLU"), module_hooks.elements("activation_counted", "activation", output=False)),
    **dict.fromkeys(nn("activation", "Softmax"), _softmax),
    **dict.fromkeys(
        nn("pooling", "AvgPool1d AvgPool2d AvgPool3d"), module_hooks.elements("pooling_counted", "pooling")
    ),
    **dict.fromkeys(nn("pooling", "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"), _adaptive),
    **dict.fromkeys(nn("upsampling", "Upsample UpsamplingBilinear2d UpsamplingNearest2d"), _upsample),
    **dict.fromkeys(nn("rnn", "RNN GRU LSTM RNNCell GRUCell LSTMCell"), _recurrent),
}
"""Class → rule. Classes whose rule is 0 (ReLU, MaxPool2d, Dropout, …) are left out: a walk finds nothing in them."""

CLOSED = frozenset(RULES)
