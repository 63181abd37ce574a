"""pthflops by its graph: torch.fx's nodes, leaf modules by class and functions named add, mul and matmul, 1 a
multiply-add (pthflops/ops_fx.py of 0.4.2). Modules of torch.nn but Sequential are leaves; a function is a node where it
is called from the code of any other module, and nothing is seen inside of it. What has no traced tensor among its
arguments is calculated at once and is no node. Forward only."""

from collections.abc import Iterator
from math import prod

from cleaning.accounts.vocabulary import module_hooks
from cleaning.accounts.vocabulary.items import Counted, DataFlow, Item, first_tensor, other, product
from cleaning.accounts.vocabulary.module_hooks import NN
from results.records.counts import APPLIED, MODULE, Call, CallRecording, ModuleInfo, tensors

UNIT = "mac"

ROOT = 0
"""Serial of the model itself, which torch.fx looks into whatever its class."""

ADDED = ("torch.add", "Tensor.__add__", "Tensor.__radd__", "Tensor.__iadd__")
MULTIPLIED = ("torch.mul", "Tensor.__mul__", "Tensor.__rmul__", "Tensor.__imul__")
MATMUL = ("torch.matmul", "Tensor.__matmul__", "Tensor.__rmatmul__")

RULES = {
    f"{NN}conv._ConvNd": "_convolution",
    f"{NN}activation.ReLU": "_relu",
    f"{NN}batchnorm._BatchNorm": "_norm",
    f"{NN}pooling._MaxPoolNd": "_max_pool",
    f"{NN}pooling._AvgPoolNd": "_avg_pool",
    f"{NN}pooling._AdaptiveAvgPoolNd": "_adaptive",
    f"{NN}linear.Linear": "_linear",
}
"""Class → rule; derived classes have the same."""


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass."""
    leaves: list[Call] = []
    folded: list[Call] = []
    found: list[Item] = []
    traced = DataFlow(recording)
    for call in recording.calls:
        if (
            leaves
            and call.index > leaves[-1].index
            and any(around.index == leaves[-1].index for around in recording.around(call))
        ):
            continue
        if call.what == MODULE:
            module = recording.modules[call.serial]
            is_sequential = f"{NN}container.Sequential" in (module.type, *module.bases)
            if (module.type.startswith(("torch.nn.", "torch.ao.nn.")) and not is_sequential) and call.serial != ROOT:
                leaves.append(call)
                traced.leaf(call)
                found += _module(module, call)
        elif not traced.any_of(call):
            folded.append(call)
        elif not call.name.startswith("einops.") and call.name != APPLIED:  # those are looked into
            leaves.append(call)
            if not call.name.startswith("Tensor.__") or traced.first_of(call):  # else it is a method, which has no rule
                found += _function(call)
    constant = {index for call in folded for index in range(call.first, call.last)}
    otherwise = module_hooks.missed(recording, RULES)
    return found, lambda operation: "constants_folded" if operation.index in constant else otherwise(operation)


def _module(module: ModuleInfo, call: Call) -> Iterator[Item]:
    given, output = first_tensor(call.arguments), first_tensor(call.output)
    rule = next((RULES[name] for name in (module.type, *module.bases) if name in RULES), "")
    if given is None or output is None or not rule:
        return
    settings, positions = module.settings, output.shape[0] * prod(output.shape[2:])
    if rule == "_convolution":
        taps = (
            prod(settings["kernel_size"]) * settings["in_channels"] * (settings["out_channels"] // settings["groups"])
        )
        fault = module_hooks.fault_of_convolution(module, call, "transposed_at_output")
        yield product(call, taps * positions, fault, "convolution")
        if "bias" in module.parameters:
            yield other(call, "bias_counted", settings["out_channels"] * positions, "convolution")
    elif rule == "_linear":
        yield product(call, given.numel * output.shape[-1])
        if "bias" in module.parameters:
            yield other(call, "bias_counted", output.shape[-1], "matmul")
    elif rule == "_relu":
        yield other(call, "activation_counted", 2 * output.numel, "activation")
    elif rule == "_norm":
        yield other(call, "normalization_counted", 2 * output.numel, "normalization")
    else:
        yield other(call, "pooling_counted", _window(rule, module, given.shape, output.shape) * output.numel, "pooling")


def _window(rule: str, module: ModuleInfo, given: tuple[int, ...], output: tuple[int, ...]) -> int:
    if rule == "_adaptive":
        return given[-2] * given[-1]
    kernel = module.settings["kernel_size"]
    taps = kernel ** (len(output) - 2) if isinstance(kernel, int) else prod(kernel)
    return int(taps) - (rule == "_max_pool")


def _function(call: Call) -> Iterator[Item]:
    output = first_tensor(call.output)
    if output is None:
        return
    if call.name in MATMUL:
        left = list(tensors(call.arguments))[call.name == "Tensor.__rmatmul__"]
        yield product(call, left.numel * output.shape[-1], "broadcast_from_first")
    elif call.name in ADDED:
        yield other(call, "addition_counted", output.numel * len(call.arguments), "elementwise")
    elif call.name in MULTIPLIED:
        yield other(call, "multiplication_counted", output.numel * len(call.arguments), "elementwise")
