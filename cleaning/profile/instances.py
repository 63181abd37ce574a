"""Recorded calls as a forest, and of it the instances: the outermost products, each with what ran inside it.

A convolution is recorded five times over (aten::conv2d → aten::convolution → aten::_convolution → …): the outermost of
the nest is the product that the model asked for, and one instance. Everything here holds for any recorder that tells
which call ran inside which. What a call costs is in `analysis/trace/operations.py`; nothing is cleaned here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analysis.trace.operations import floating_dtype, is_product, kind_of_call
from results.errors import Inconsistent
from results.records.cell import Run
from results.records.counts import CleanedOperation, CleaningLog
from results.records.operations import ProfiledOperation
from results.records.rows import Record, to_text
from results.records.vocabulary import WORKS
from results.store.layout import profile_file

FORWARD = ("forward", "loss")
"""The phases of the forward pass."""

STEP = (*FORWARD, "backward")
"""The phases whose products are model FLOP of a training step."""


@dataclass(frozen=True)
class CallNode:
    """One recorded call and the calls that it made itself, in order of start.

    Its phase, module and forward_index are its own, or where it names none those of the call around it.
    """

    call: ProfiledOperation
    children: tuple[CallNode, ...]

    def walk(self) -> Iterator[CallNode]:
        """This node and all inside it, outer before inner."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Instance(Record):
    """An outermost product, and its row so far. A cleaning step replaces the row, never the node."""

    node: CallNode
    row: CleanedOperation


def forest(calls: Sequence[ProfiledOperation]) -> tuple[CallNode, ...]:
    """The outermost calls of a recording with all inside them, by work and order of start.

    The order of `calls` does not matter. Raises Inconsistent for an index twice, a parent that is not there, or calls
    that are inside themselves.
    """
    inside: dict[tuple[str, int | None], list[ProfiledOperation]] = {}
    known = {(call.work, call.index) for call in calls}
    if len(known) != len(calls):
        raise Inconsistent(f"expected each call of a profile once, came {len(calls)} rows of {len(known)} calls")
    for call in sorted(calls, key=_order):
        if call.parent is not None and (call.work, call.parent) not in known:
            raise Inconsistent(f"call {call.index} of {call.work} is inside {call.parent}, which was not recorded")
        inside.setdefault((call.work, call.parent), []).append(call)
    roots = sorted((call for call in calls if call.parent is None), key=_order)
    nodes = tuple(_node(root, inside) for root in roots)
    reached = sum(1 for node in nodes for _ in node.walk())
    if reached != len(calls):
        raise Inconsistent(f"{len(calls) - reached} calls of a profile are inside themselves")
    return nodes


def instances(run: Run, nodes: Sequence[CallNode], source: str) -> tuple[Instance, ...]:
    """The outermost products, each with a row that says what the recorder counted in it, and nothing more yet."""
    outermost = [found for node in nodes for found in _outermost(node)]
    owner = {(n.call.work, n.call.index): top.call.index for top in outermost for n in top.walk()}
    return tuple(Instance(node, _row(run, node, owner, source)) for node in outermost)


def no_products(nodes: Sequence[CallNode]) -> Iterator[CallNode]:
    """The calls that are no product, inside of one or not."""
    return (inner for node in nodes for inner in node.walk() if not is_product(inner.call.name))


def number_of(node: CallNode) -> int | None:
    """What the recorder counted of a call that is a product; None for any other, whose number is of no product."""
    return node.call.found_flop if is_product(node.call.name) else None


def entry(step: str, row: CleanedOperation, field: str, before: object, after: object, reason: str) -> CleaningLog:
    """One row of the cleaning log about a recorded product."""
    return CleaningLog(
        step=step,
        file=profile_file(row.cell_id, row.attempt),
        cell_id=row.cell_id,
        attempt=row.attempt,
        subject=" ".join(word for word in (row.work, str(row.index), row.name, row.module) if word),
        field=field,
        before=to_text(before),
        after=to_text(after),
        reason=reason,
    )


def _order(call: ProfiledOperation) -> tuple[int, str, int]:
    return (WORKS.index(call.work) if call.work in WORKS else len(WORKS), call.work, call.index)


def _node(call: ProfiledOperation, inside: dict[tuple[str, int | None], list[ProfiledOperation]]) -> CallNode:
    children = [_node(_placed(child, call), inside) for child in inside.get((call.work, call.index), ())]
    return CallNode(call, tuple(children))


def _placed(call: ProfiledOperation, around: ProfiledOperation) -> ProfiledOperation:
    """A call that has taken from the one around it what it does not say of its place."""
    phase, module = call.phase or around.phase, call.module or around.module
    forward_index = around.forward_index if call.forward_index is None else call.forward_index
    if (phase, module, forward_index) == (call.phase, call.module, call.forward_index):
        return call
    return replace(call, phase=phase, module=module, forward_index=forward_index)


def _outermost(node: CallNode) -> Iterator[CallNode]:
    if is_product(node.call.name):
        yield node
        return
    for child in node.children:
        yield from _outermost(child)


def _row(run: Run, node: CallNode, owner: dict[tuple[str, int], int], source: str) -> CleanedOperation:
    call = node.call
    forward = None if call.forward_index is None else owner.get((call.work, call.forward_index), call.forward_index)
    numbers = [number for inner in node.walk() if (number := number_of(inner)) is not None]
    return CleanedOperation(
        cell_id=run.cell_id,
        attempt=run.attempt,
        source=source,
        work=call.work,
        index=call.index,
        name=call.name,
        kind=kind_of_call(call.name),
        phase=call.phase,
        module=call.module,
        forward_index=forward,
        dtype=_dtype(node),
        found_flop=sum(numbers) if numbers else None,
        deduplicated_flop=sum(numbers) if numbers else None,
        cleaned_flop=None,
        verdict="",
        time_s=call.time_s,
    )


def _dtype(node: CallNode) -> str:
    """What the product computes in: the dtype of the innermost product that names one, for autocast casts inside."""
    deepest, dtype = -1, ""
    stack = [(node, 0)]
    while stack:
        inner, depth = stack.pop(0)
        call = inner.call
        word = floating_dtype(call.input_shapes, call.input_dtypes) if is_product(call.name) else ""
        if word and depth > deepest:
            deepest, dtype = depth, word
        stack.extend((child, depth + 1) for child in inner.children)
    return dtype
