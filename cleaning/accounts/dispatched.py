"""Recomputes what counters that listen to torch's operators count, to explain differences from the exact count.

Each function takes a `CallRecording` (a model's calls) and a pass, and returns `Counted`: the parts of the total.
`flopledger` is our own counter: every product at 2 FLOP per multiply-add. `flop_counter_mode`
(torch/utils/flop_counter.py of 2.11 to 2.15) has a formula for each operator in its registry, in both passes.
`ptflops_aten` (ptflops/aten_ops.py of 0.7.4 and 0.7.5) counts 1 per multiply-add and per biased output element, forward
only. `torch_profiler` (`computeFlops` in torch/csrc/profiler/util.cpp, 2.11 to 2.15) counts conv2d, mm, addmm, bmm and
baddbmm at 2 per multiply-add. It adds each element of the first argument of add and mul. It skips a conv2d whose
padding is a string.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

from analysis.operators.cost import shape
from analysis.operators.products import attention_backward_executed
from analysis.operators.registry import model_flop
from cleaning.accounts.items import (
    FUSED_NOT_SEEN,
    Counted,
    Item,
    bound,
    first_tensor,
    in_phase,
    missed_by,
    of_operation,
    product,
    real_flop,
)
from results.records.calls import FUNCTION, CallRecording
from results.records.counts import Operation


def flopledger(recording: CallRecording, phase: str) -> Counted:
    """Return our own counter's items (the parts of its total) of one pass."""
    products = ((operation, model_flop(operation)) for operation in in_phase(recording, phase))
    items = [of_operation(operation, flop) for operation, flop in products if flop]
    return items, missed_by({}, "operator_without_rule")


FLOP_COUNTER_MODE = frozenset(
    f"aten.{name}"
    for name in [
        *("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "convolution", "_convolution", "cudnn_convolution"),
        *("_slow_conv2d_forward", "convolution_overrideable"),
        *(f"_scaled_dot_product_{kind}_attention" for kind in ("efficient", "flash", "cudnn")),
        *("_scaled_dot_product_flash_attention_for_cpu", "_flash_attention_forward", "_efficient_attention_forward"),
    ]
)
"""Operators whose formula agrees with ours."""

ATTENTION_BACKWARD = frozenset(
    f"aten._scaled_dot_product_{name}_backward"
    for name in ("efficient_attention", "flash_attention", "flash_attention_for_cpu", "cudnn_attention")
)


def flop_counter_mode(recording: CallRecording, phase: str) -> Counted:
    """Return FlopCounterMode's items of one pass. Recomputation runs in the backward pass, and is counted there.

    Attention on a CPU has no formula before torch 2.15; `recording.formulas` lists the operators that have one.
    """
    items = list(_formula_items(recording, phase))
    if phase == "backward":
        items += [replace(item, cause="recompute_counted") for item in _formula_items(recording, "recompute")]
    return items, missed_by(FUSED_NOT_SEEN, "operator_without_rule")


def _formula_items(recording: CallRecording, phase: str) -> Iterator[Item]:
    for operation in in_phase(recording, phase):
        if operation.name in recording.formulas:
            yield from _items_of_operation(operation)


def _items_of_operation(operation: Operation) -> Iterator[Item]:
    flop = real_flop(operation)
    if operation.name in FLOP_COUNTER_MODE and flop:
        yield of_operation(operation, flop)
    elif operation.name == "aten.convolution_backward" and flop:
        # once for the input's gradient, groups times for the weight's: its transposed sizes forget the groups
        to_input, to_weight = (bool(wanted) for wanted in operation.attributes["output_mask"][:2])
        times = to_input + to_weight * int(operation.attributes["groups"])
        yield of_operation(operation, flop // (to_input + to_weight) * times, fault="grouped_backward")
    elif operation.name in ATTENTION_BACKWARD and flop:
        # scores again, then the four products of the backward pass
        query, key, value = (shape(operation, name) for name in ("query", "key", "value"))
        executed = attention_backward_executed(prod(query[:3]), key[2], query[3], value[3])
        yield of_operation(operation, int(executed), fault="scores_computed_again")


PTFLOPS = frozenset(f"aten.{name}" for name in ("mm", "addmm", "bmm", "matmul", "convolution", "_convolution"))
WITH_BIAS = {"aten.addmm": "self", "aten.convolution": "bias", "aten._convolution": "bias"}
"""Operator → its bias argument."""


def ptflops_aten(recording: CallRecording, phase: str) -> Counted:
    """Return the aten backend's items of one pass."""
    items = []
    for operation in in_phase(recording, phase):
        if operation.name in PTFLOPS:
            items.append(of_operation(operation, real_flop(operation) // 2))
            if WITH_BIAS.get(operation.name) in operation.input_names:
                items.append(of_operation(operation, prod(operation.output_shapes[0]), "bias_counted"))
    return items, missed_by(FUSED_NOT_SEEN, "operator_without_rule")


PRODUCTS = frozenset(("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"))

CONV2D = ("F.conv2d", "torch.conv2d")

ELEMENTWISE = {"aten.add": "addition_counted", "aten.mul": "multiplication_counted"}


def torch_profiler(recording: CallRecording, phase: str) -> Counted:
    """Return torch.profiler's items of one pass. Recomputation runs in the backward pass, and is counted there."""
    if phase == "forward":
        return [*_operations(recording, phase), *_convolutions(recording)], _forward_missed(recording)
    return [*_operations(recording, phase), *_recomputed_items(recording)], missed_by({}, "backward_not_counted")


def _operations(recording: CallRecording, phase: str) -> Iterator[Item]:
    for operation in in_phase(recording, phase):
        if operation.name in PRODUCTS:
            yield of_operation(operation, real_flop(operation))
    for call in recording.plain:
        if call.phase == phase and call.name in ELEMENTWISE:
            yield Item(prod(call.shapes[0]) if call.shapes else 1, ELEMENTWISE[call.name], "elementwise", call.path)
    yield from _inner(recording, phase)


def _inner(recording: CallRecording, phase: str) -> Iterator[Item]:
    """Yield products that an operator without a rule calls: together they stand for that operator, if it is a
    product."""
    without: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in in_phase(recording, phase):
        if operation.name not in PRODUCTS and real_flop(operation):
            without[operation.name].append(operation)
    sums: Counter[int] = Counter()
    for call in recording.plain:
        if call.phase != phase or not call.inside or call.name not in PRODUCTS:
            continue
        left, right = call.shapes[1:3] if call.name in ("aten.addmm", "aten.baddbmm") else call.shapes[:2]
        native = 2 * prod(left) * right[-1]
        name, number = next(((name, number) for name, number in call.inside if name in without), ("", 0))
        if not name:
            yield Item(native, "inner_products", "matmul", call.path)
        elif number < len(without[name]):
            sums[without[name][number].index] += native
    for index, native in sums.items():
        yield of_operation(recording.operations[index], native, fault="inner_products")


def _convolutions(recording: CallRecording) -> Iterator[Item]:
    for call in recording.calls:
        if call.what != FUNCTION or call.name not in CONV2D:
            continue
        arguments, output = bound(call, "input weight bias stride padding"), first_tensor(call.output)
        if (
            len(arguments["input"].shape) == 4
            and not isinstance(arguments.get("padding", 0), str)
            and output is not None
        ):
            yield product(call, 2 * output.numel * prod(arguments["weight"].shape[1:]), kind="convolution")


def _recomputed_items(recording: CallRecording) -> Iterator[Item]:
    """Yield what is recomputed: a product counts as it did in the forward pass."""
    known: dict[tuple[str, str, tuple[tuple[int, ...], ...]], int] = {}
    for operation in in_phase(recording, "forward"):
        name = "aten.conv2d" if operation.kind == "convolution" else operation.name
        for path in (operation.module, ""):
            known.setdefault((path, name, operation.input_shapes), real_flop(operation))
    for call in (call for call in recording.plain if call.phase == "recompute"):
        if call.name in ELEMENTWISE:
            kind, native = "elementwise", prod(call.shapes[0]) if call.shapes else 1
        else:
            kind = "convolution" if call.name == "aten.conv2d" else "matmul"
            native = known.get((call.path, call.name, tuple(shape for shape in call.shapes if shape)), 0)
        yield Item(native, "recompute_counted", kind, call.path)


def _forward_missed(recording: CallRecording) -> Callable[[Operation], str]:
    bare = {
        index
        for call in recording.calls
        if call.name in CONV2D and len(bound(call, "input")["input"].shape) != 4
        for index in range(call.first, call.last)
    }
    other = missed_by(FUSED_NOT_SEEN, "operator_without_rule")

    def why(operation: Operation) -> str:
        if operation.kind != "convolution":
            return other(operation)
        if len(operation.input_shapes[0]) != 4 or operation.attributes.get("transposed", False):
            return "not_two_dimensional"
        return "without_batch" if operation.index in bare else "string_padding_not_seen"

    return why
