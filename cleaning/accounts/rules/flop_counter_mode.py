"""PyTorch's FlopCounterMode by its registry: a formula for each of these operators, nothing for any other, 2 FLOP a
multiply-add, forward and backward (torch/utils/flop_counter.py of 2.11 to 2.15)."""

from dataclasses import replace

from analysis.operators.cost import shape
from analysis.operators.products import attention_backward_executed
from cleaning.accounts.vocabulary.items import (
    FUSED_NOT_SEEN,
    Counted,
    Item,
    exact_flop,
    in_phase,
    missed_by,
    of_operation,
    real_flop,
)
from results.records.counts import CallRecording, Operation

UNIT = "flop"

FORMULAS = frozenset(
    f"aten.{name}"
    for name in [
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "_scaled_mm",
        "convolution",
        "_convolution",
        "cudnn_convolution",
        "_slow_conv2d_forward",
        "convolution_overrideable",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_cudnn_attention",
        "_flash_attention_forward",
        "_efficient_attention_forward",
    ]
)
"""Operators whose formula is ours."""

ATTENTION_BACKWARD = frozenset(
    f"aten._scaled_dot_product_{name}_backward"
    for name in ("efficient_attention", "flash_attention", "flash_attention_for_cpu", "cudnn_attention")
)


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass. What is calculated again runs in the backward pass, and is counted there."""
    found = [item for operation in in_phase(recording, phase) if (item := _item(operation)) is not None]
    if phase == "backward":
        again = [item for operation in in_phase(recording, "recompute") if (item := _item(operation)) is not None]
        found += [replace(item, cause="recompute_counted") for item in again]
    return found, missed_by(FUSED_NOT_SEEN, "operator_without_rule")


def _item(operation: Operation) -> Item | None:
    exact = exact_flop(operation)
    if not exact:
        return None
    if operation.name in FORMULAS:
        return of_operation(operation, real_flop(operation))
    if operation.name == "aten.convolution_backward":
        return of_operation(operation, _convolution_backward(operation, real_flop(operation)), fault="grouped_backward")
    if operation.name in ATTENTION_BACKWARD:
        return of_operation(operation, attention_backward(operation), fault="scores_computed_again")
    return None


def _convolution_backward(operation: Operation, flop: int) -> int:
    """Once for the input's gradient, groups times for the weight's: its transposed sizes forget the groups."""
    to_input, to_weight = (bool(wanted) for wanted in operation.attributes["output_mask"][:2])
    once = flop // (to_input + to_weight)
    return once * (to_input + to_weight * int(operation.attributes["groups"]))


def attention_backward(operation: Operation) -> int:
    """Scores again, then the four products of the backward pass."""
    query, key, value = (shape(operation, name) for name in ("query", "key", "value"))
    rows = query[0] * query[1] * query[2]
    return int(attention_backward_executed(rows, key[2], query[3], value[3]))
