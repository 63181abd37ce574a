"""torch.profiler's with_flops by its table: conv2d, mm, addmm, bmm, baddbmm at 2 a multiply-add, and each element of
the first argument of add and mul (`computeFlops` in torch/csrc/profiler/util.cpp, the same in 2.11 and 2.15).

It counts recorded calls by their name, those inside of operators and of the engine, too. Products are the dispatcher's
operations, but that a two-dimensional convolution is counted where `conv2d` was called, with numbers for its padding;
sums and products of elements are those of a plain step (`measure/profile/unseen_operations.py`).
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from cleaning.accounts.vocabulary.items import (
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
from results.records.counts import FUNCTION, Call, CallRecording, Operation, PlainCall

UNIT = "flop"

PRODUCTS = frozenset(("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"))

CONV2D = ("F.conv2d", "torch.conv2d")

Shapes = tuple[tuple[int, ...], ...]

ELEMENTWISE = {"aten.add": "addition_counted", "aten.mul": "multiplication_counted"}


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass. What is calculated again runs in the backward pass, and is counted there."""
    if phase == "forward":
        return [*_operations(recording, phase), *_convolutions(recording)], _forward_missed(recording)
    return [*_operations(recording, phase), *_recomputed_items(recording)], _backward_missed


def _operations(recording: CallRecording, phase: str) -> Iterator[Item]:
    for operation in in_phase(recording, phase):
        if operation.name in PRODUCTS:
            yield of_operation(operation, real_flop(operation))
    for call in recording.plain:
        if call.phase == phase and call.name in ELEMENTWISE:
            yield Item(_elements(call), ELEMENTWISE[call.name], "elementwise", call.path)
    yield from _inner(recording, phase)


def _inner(recording: CallRecording, phase: str) -> Iterator[Item]:
    """Products that an operator without a rule calls inside itself: together they stand for that operator, if it is a
    product."""
    without: dict[str, list[Operation]] = {}
    for operation in in_phase(recording, phase):
        if operation.name not in PRODUCTS and real_flop(operation):
            without.setdefault(operation.name, []).append(operation)
    sums: dict[int, int] = {}
    for call in recording.plain:
        if call.phase != phase or not call.inside or call.name not in PRODUCTS:
            continue
        around = next(((name, number) for name, number in call.inside if name in without), None)
        left, right = call.shapes[1:3] if call.name in ("aten.addmm", "aten.baddbmm") else call.shapes[:2]
        native = 2 * prod(left) * right[-1]
        if around is None:
            yield Item(native, "inner_products", "matmul", call.path)
        elif around[1] < len(without[around[0]]):
            index = without[around[0]][around[1]].index
            sums[index] = sums.get(index, 0) + native
    for index, native in sums.items():
        yield of_operation(recording.operations[index], native, fault="inner_products")


def _elements(call: PlainCall) -> int:
    return prod(call.shapes[0]) if call.shapes else 1


def _convolutions(recording: CallRecording) -> Iterator[Item]:
    for call in recording.calls:
        if (
            call.what == FUNCTION
            and call.name in CONV2D
            and _has_batch(call)
            and not isinstance(_convolved(call).get("padding", 0), str)
        ):
            weight, output = first_tensor(_convolved(call)["weight"]), first_tensor(call.output)
            if weight is not None and output is not None:
                yield product(call, 2 * output.numel * prod(weight.shape[1:]), kind="convolution")


def _recomputed_items(recording: CallRecording) -> Iterator[Item]:
    """What is calculated again: a product counts as the same one did forward."""
    known: dict[tuple[str, str, Shapes], int] = {}
    for operation in in_phase(recording, "forward"):
        name = "aten.conv2d" if operation.kind == "convolution" else operation.name
        for path in (operation.module, ""):
            known.setdefault((path, name, operation.input_shapes), real_flop(operation))
    for call in recording.plain:
        if call.phase != "recompute":
            continue
        if call.name in ELEMENTWISE:
            yield Item(_elements(call), "recompute_counted", "elementwise", call.path)
            continue
        tensors = tuple(shape for shape in call.shapes if shape)
        kind = "convolution" if call.name == "aten.conv2d" else "matmul"
        yield Item(known.get((call.path, call.name, tensors), 0), "recompute_counted", kind, call.path)


def _has_batch(call: Call) -> bool:
    return len(_convolved(call)["input"].shape) == 4


def _convolved(call: Call) -> dict[str, Any]:
    return bound(call, "input weight bias stride padding dilation groups")


def _forward_missed(recording: CallRecording) -> Callable[[Operation], str]:
    calls = [call for call in recording.calls if call.name in CONV2D and not _has_batch(call)]
    bare = {index for call in calls for index in range(call.first, call.last)}
    other = missed_by(FUSED_NOT_SEEN, "operator_without_rule")

    def why(operation: Operation) -> str:
        if operation.kind != "convolution":
            return other(operation)
        if len(operation.input_shapes[0]) != 4 or operation.attributes.get("transposed", False):
            return "not_two_dimensional"
        return "without_batch" if operation.index in bare else "string_padding_not_seen"

    return why


def _backward_missed(_operation: Operation) -> str:
    return "backward_not_counted"
