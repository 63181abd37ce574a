"""torch.profiler's with_flops by its table: conv2d, mm, addmm, bmm, baddbmm at 2 a multiply-add, and each element of
the first argument of add and mul (`computeFlops` in torch/csrc/profiler/util.cpp, the same in 2.11 and 2.15).

It counts recorded calls by their name, those inside of operators and of the engine, too. Products are the dispatcher's
operations, but that a two-dimensional convolution is counted where `conv2d` was called, with numbers for its padding;
sums and products of elements are those of a plain step (`measure/unwatched.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from cleaning.accounts.items import Counted, Item, bound, exact_flop, first_tensor, in_phase, of_operation, product
from results.calls import FUNCTION, Call, Recording
from results.records import Operation

UNIT = "flop"

PRODUCTS = frozenset(f"aten.{name}" for name in ("mm", "addmm", "bmm", "baddbmm"))
ELEMENTWISE = {"aten.add": "addition_counted", "aten.mul": "multiplication_counted"}


def count(recording: Recording, phase: str) -> Counted:
    """Its items of one pass."""
    found = [*_operations(recording, phase), *(_convolutions(recording) if phase == "forward" else ())]
    return found, _backward_missed if phase == "backward" else _forward_missed


def _operations(recording: Recording, phase: str) -> Iterator[Item]:
    for operation in in_phase(recording, phase):
        if operation.name in PRODUCTS:
            yield of_operation(operation, exact_flop(operation))
    for call in recording.plain:
        if call.phase == phase:
            yield Item(prod(call.shape), ELEMENTWISE[call.name], "elementwise", call.path)


def _convolutions(recording: Recording) -> Iterator[Item]:
    for call in recording.calls:
        if call.what == FUNCTION and call.name in ("F.conv2d", "torch.conv2d") and _is_counted(call):
            weight, output = first_tensor(bound(call, "input weight")["weight"]), first_tensor(call.output)
            if weight is not None and output is not None:
                yield product(call, 2 * output.numel * prod(weight.shape[1:]), kind="convolution")


def _is_counted(call: Call) -> bool:
    given = bound(call, "input weight bias stride padding dilation groups")
    return len(given["input"].shape) == 4 and not isinstance(given.get("padding", 0), str)


def _forward_missed(operation: Operation) -> str:
    if operation.kind == "convolution":
        return "not_two_dimensional" if not _is_plain_2d(operation) else "string_padding_not_seen"
    return {"attention": "attention_not_seen", "recurrent": "recurrent_not_seen"}.get(
        operation.kind, "operator_without_rule"
    )


def _is_plain_2d(operation: Operation) -> bool:
    return len(operation.input_shapes[0]) == 4 and not operation.attributes.get("transposed", False)


def _backward_missed(_operation: Operation) -> str:
    return "backward_not_counted"
