"""ptflops' aten backend by its table: products and convolutions at the dispatcher, 1 a multiply-add, biases 1 an
element of the output (ptflops/aten_ops.py of 0.7.4 and 0.7.5). Forward only."""

from collections.abc import Iterator
from math import prod

from cleaning.accounts.vocabulary.items import (
    FUSED_NOT_SEEN,
    Counted,
    Item,
    in_phase,
    missed_by,
    of_operation,
    real_flop,
)
from results.records.counts import CallRecording

UNIT = "mac"

FORMULAS = frozenset(f"aten.{name}" for name in ("mm", "addmm", "bmm", "matmul", "convolution", "_convolution"))
WITH_BIAS = {"aten.addmm": "self", "aten.convolution": "bias", "aten._convolution": "bias"}
"""Operator → the argument that is its bias."""


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass."""
    return list(_items(recording, phase)), missed_by(FUSED_NOT_SEEN, "operator_without_rule")


def _items(recording: CallRecording, phase: str) -> Iterator[Item]:
    for operation in in_phase(recording, phase):
        if operation.name not in FORMULAS:
            continue
        yield of_operation(operation, real_flop(operation) // 2)
        if WITH_BIAS.get(operation.name) in operation.input_names:
            yield of_operation(operation, prod(operation.output_shapes[0]), "bias_counted")
