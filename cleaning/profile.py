"""Recorded profiles cleaned: what a recorder counted of each product, once, with its gaps filled from recorded shapes.

From recorded calls to rows, with a log row for every change, and from rows to the model FLOP of one sample, one batch
and an epoch. Any recorder whose calls come as ProfiledOperations will do. A convolution is recorded five times over
(aten::conv2d → aten::convolution → …): the outermost of the nest is the product that the model asked for.

* Multiply-adds that were counted at two levels of one nest count once: at the outermost level that has a number.
  Autocast records a convolution inside a convolution, both with the whole count. A number of 0 is none: it is what
  recorders write for what they could not work out.
* Gaps are filled and wrong numbers put right from recorded shapes, by the formulas of `analysis/`. Where the outer call
  does not say enough (a padding by name, weights in a list), the products inside it do, if all of them can be counted.

No product is left out in silence: one without a count makes its phase unknown, with the reason. Not claimed: times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.trace.operations import floating_dtype, is_product, kind_of_call, product_flop
from analysis.utilization.numerators import PROFILER
from analysis.utilization.work_times import epoch_parts, images_of
from cleaning.counts import known_sum, whole_sum
from results.errors import Inconsistent, Unavailable
from results.records.cell import Run, identity
from results.records.counts import CleanedOperation, CleaningLog, ProfileCount, ProfiledOperation
from results.records.rows import WORKS, to_text
from results.store.layout import profile_file

FORWARD = ("forward", "loss")
"""The phases of the forward pass."""

STEP = (*FORWARD, "backward")
"""The phases whose products are model FLOP of a training step."""

PHASES: tuple[tuple[str, tuple[str, ...]], ...] = (("forward", FORWARD), ("backward", ("backward",)))
"""Phases of a count, and the recorded phases that each is the sum of."""

AT_LEAST = {
    "found": "found_at_least_flop",
    "deduplicated": "deduplicated_at_least_flop",
    "cleaned": "at_least_flop",
}
"""State → the field that has what is known of its total, at least."""

Traced = Callable[[Sequence[str]], int]
"""Phases → model FLOP of a trace's operations in them together."""


@dataclass(frozen=True)
class CleanedProfile:
    """One row a product, and what cleaning changed.

    outside_time_ratio: of the time of kernels that make products, the share of those in no recorded call. kernels,
    busy_s: how many kernels, copies and fills the step has, and how long at least one of them ran. None: it has none.
    """

    operations: tuple[CleanedOperation, ...]
    log: tuple[CleaningLog, ...]
    outside_time_ratio: float | None = None
    kernels: int | None = None
    busy_s: float | None = None


def clean_profile(run: Run, calls: Sequence[ProfiledOperation], source: str = PROFILER) -> CleanedProfile:
    """What a recorder wrote of a run, cleaned; the order of `calls` does not matter.

    Raises Inconsistent for calls that form no forest.
    """
    nodes = forest(calls)
    products = [product for node in nodes for product in _outermost(node)]
    owner = {(n.call.work, n.call.index): top.call.index for top in products for n in top.walk()}
    rows: list[CleanedOperation] = []
    once: list[CleaningLog] = []
    repairs: list[CleaningLog] = []
    for node in products:
        row = _row(run, node, owner, source)
        flop = None if row.found_flop is None else outermost_count(node)
        if flop != row.found_flop:
            once.append(
                _entry("counted_once", row, "deduplicated_flop", row.found_flop, flop, _why_twice(node, row, flop))
            )
        row = _judged(node, replace(row, deduplicated_flop=flop))
        if row.cleaned_flop != flop:
            repairs.append(_entry("repaired", row, "cleaned_flop", flop, row.cleaned_flop, row.reason))
        rows.append(mark_outside_step(row))
    return CleanedProfile(tuple(rows), (*_left_out(run, nodes), *once, *repairs))


def mark_outside_step(row: CleanedOperation) -> CleanedOperation:
    """The row; of a product that is no model FLOP of a step, with words that say so."""
    place = f"in {row.phase}" if row.phase else "in no phase"
    reason = f"{place}: no model FLOP of the step"
    if row.phase in STEP or reason in row.reason:
        return row
    return replace(row, reason="; ".join(word for word in (row.reason, reason) if word))


def why_unprofiled(run: Run, work: str) -> str:
    """Why a work has no profile; "" if it has one."""
    if work in run.profiled:
        return ""
    return str(run.unprofiled.get(work) or run.reason or "no profile of it was recorded")


def profile_counts(
    run: Run,
    operations: Sequence[CleanedOperation],
    traced: Traced | None,
    source: str = PROFILER,
    outside: Mapping[str, float | None] | None = None,
) -> tuple[ProfileCount, ...]:
    """Model FLOP of forward and backward of each work that has a profile or should have one, and of an epoch.

    operations: those of this run's profile, all of one source. traced: its own trace, of one batch. An epoch is counted
    if the method was asked for: its full batches and the last one. outside: work → CleanedProfile.outside_time_ratio.
    """
    wanted = {"one": "one" in run.methods, "batch": bool({"batch", "epoch"} & set(run.methods))}
    wanted["last"] = "epoch" in run.methods and "last" in epoch_parts(run)
    works = [work for work in wanted if wanted[work] or work in run.profiled or work in run.unprofiled]
    counted = {(work, phase): _count(run, operations, traced, work, phase) for work in works for phase, _ in PHASES}
    rows = {key: replace(row, outside_time_ratio=(outside or {}).get(row.work)) for key, row in counted.items()}
    if "epoch" in run.methods:
        rows.update({("epoch", phase): _epoch(run, rows, phase) for phase, _ in PHASES})
    return tuple(replace(row, source=source) for row in rows.values())


# --- counts ----------------------------------------------------------------------------------------------------------


def _count(
    run: Run, operations: Sequence[CleanedOperation], traced: Traced | None, work: str, phase: str
) -> ProfileCount:
    items = images_of(run, work)
    blank = _blank(run, work, phase, items)
    why = why_unprofiled(run, work)
    if why:
        return replace(blank, status="unavailable", reason=why)
    recorded = [row for row in operations if row.work == work]
    rows = [row for row in recorded if row.phase in dict(PHASES)[phase]]
    return replace(
        blank,
        **_sums(rows),
        exact_flop=traced(dict(PHASES)[phase]) if traced is not None and items == run.batch_size else None,
        operations=len(rows),
        removed=sum(row.found_flop != row.deduplicated_flop for row in rows),
        repaired=sum(row.cleaned_flop not in (None, row.deduplicated_flop) for row in rows),
        unknown=sum(row.cleaned_flop is None for row in rows),
        unknown_calls=sum(row.cleaned_flop is None for row in rows),
        unknown_time_ratio=_unknown_time(rows),
        status="ok" if rows and all(row.cleaned_flop is not None for row in rows) else "unavailable",
        reason="; ".join(_doubts(recorded, rows, phase)),
    )


def _sums(rows: Sequence[CleanedOperation]) -> dict[str, Any]:
    """A total of each state, unknown if one product has no number in it, and beside it the sum of those that have."""
    sums: dict[str, Any] = {}
    for state, at_least in AT_LEAST.items():
        numbers = [getattr(row, f"{state}_flop") for row in rows]
        sums[f"{state}_flop"] = whole_sum(numbers) if rows else None
        sums[at_least] = (known_sum(numbers) or 0) if rows else None
    return sums


def _unknown_time(rows: Sequence[CleanedOperation]) -> float | None:
    """The share of the products' time that those without a count took; None where one of them has no time."""
    lost = [row.time_s for row in rows if row.cleaned_flop is None]
    whole = sum(row.time_s or 0.0 for row in rows)
    if not lost:
        return 0.0 if rows else None
    return sum(time_s or 0.0 for time_s in lost) / whole if all(lost) else None


def _doubts(recorded: Sequence[CleanedOperation], rows: Sequence[CleanedOperation], phase: str) -> list[str]:
    """What a reader of a count must know: what is unknown in it, and what is in no phase."""
    doubts = [] if rows else [f"no convolution or matrix product was recorded in {phase}"]
    unknown = [row for row in rows if row.cleaned_flop is None]
    if unknown:
        first = f"{unknown[0].name} {unknown[0].module}: {unknown[0].reason}"
        doubts.append(f"{len(unknown)} of {len(rows)} products have no count, the first {first}")
    homeless = sum(row.phase not in (*STEP, "optimizer", "recompute") for row in recorded)
    if homeless:
        doubts.append(f"{homeless} products are in no phase and not counted")
    return doubts


def _epoch(run: Run, rows: dict[tuple[str, str], ProfileCount], phase: str) -> ProfileCount:
    parts = [(rows[work, phase], times) for work, times in epoch_parts(run).items()]
    blank = _blank(run, "epoch", phase, run.epoch_images)
    sums: dict[str, Any] = {f"{state}_flop": whole_sum(_of_all(parts, f"{state}_flop")) for state in AT_LEAST}
    sums |= {name: known_sum(_of_all(parts, name)) for name in AT_LEAST.values()}
    only_full = not any(part.work == "last" for part, _ in parts)
    reasons = dict.fromkeys(f"{part.work}: {part.reason}" for part, _ in parts if part.reason)
    return replace(
        blank,
        **sums,
        exact_flop=whole_sum(_of_all(parts, "exact_flop")) if only_full else None,
        operations=sum(part.operations * times for part, times in parts),
        removed=sum(part.removed * times for part, times in parts),
        repaired=sum(part.repaired * times for part, times in parts),
        unknown=sum(part.unknown * times for part, times in parts),
        unknown_calls=sum(part.unknown_calls * times for part, times in parts),
        unknown_time_ratio=_one_or_none(part.unknown_time_ratio for part, _ in parts),
        outside_time_ratio=_one_or_none(part.outside_time_ratio for part, _ in parts),
        status=next((part.status for part, _ in parts if part.status != "ok"), "ok"),
        reason="; ".join(reasons),
    )


def _of_all(parts: Sequence[tuple[ProfileCount, int]], name: str) -> list[int | None]:
    """One number of each work of an epoch, times how often the work is in it."""
    values = [(getattr(part, name), times) for part, times in parts]
    return [None if value is None else value * times for value, times in values]


def _one_or_none(shares: Iterable[float | None]) -> float | None:
    """The share of time that all works of an epoch have; None where they differ: their times are not in a count."""
    known = set(shares)
    return known.pop() if len(known) == 1 else None


def _blank(run: Run, work: str, phase: str, items: int) -> ProfileCount:
    return ProfileCount(
        **identity(run, ProfileCount),
        source=PROFILER,
        work=work,
        items=items,
        phase=phase,
    )


# --- recorded calls --------------------------------------------------------------------------------------------------


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


def number_of(node: CallNode) -> int | None:
    """What the recorder counted of a call that is a product; None for any other, whose number is of no product."""
    return node.call.found_flop if is_product(node.call.name) else None


def _entry(step: str, row: CleanedOperation, field: str, before: object, after: object, reason: str) -> CleaningLog:
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
        dtype=_dtype(node)[1],
        found_flop=sum(numbers) if numbers else None,
        deduplicated_flop=sum(numbers) if numbers else None,
        cleaned_flop=None,
        verdict="",
        time_s=call.time_s,
    )


def _dtype(node: CallNode, depth: int = 0) -> tuple[int, str]:
    """What the product computes in, with its depth: the dtype of the innermost product that names one, for autocast
    casts inside."""
    call = node.call
    word = floating_dtype(call.input_shapes, call.input_dtypes) if is_product(call.name) else ""
    levels = [(depth if word else -1, word), *(_dtype(child, depth + 1) for child in node.children)]
    return max(levels, key=lambda level: level[0])


# --- numbers ---------------------------------------------------------------------------------------------------------


def outermost_count(node: CallNode) -> int:
    """What a nest counts if each multiply-add counts at the outermost level that has a number; 0 if none has."""
    return number_of(node) or sum(outermost_count(child) for child in node.children)


def _why_twice(node: CallNode, row: CleanedOperation, flop: int | None) -> str:
    levels = [(inner, number) for inner in node.walk() if (number := number_of(inner))]
    counted = ", ".join(f"{inner.call.name} {number}" for inner, number in levels)
    reason = f"{(row.found_flop or 0) - (flop or 0)} FLOP were counted again inside: {counted}"
    for outer, number in levels:
        inside = sum(outermost_count(child) for child in outer.children)
        if inside > number:
            reason += f"; {outer.call.name} counts {number}, less than the {inside} inside it"
    return reason


def shapes_flop(node: CallNode) -> int:
    """Model FLOP of a nest by its recorded shapes: of its outermost call, else of the products inside it together.

    Raises Unavailable, with why, where neither is known.
    """
    if not is_product(node.call.name):
        return sum(map(shapes_flop, _outermost(node)))
    try:
        return product_flop(node.call)
    except Unavailable as fault:
        inside = [product for child in node.children for product in _outermost(child)]
        if not inside:
            raise
        try:
            return sum(map(shapes_flop, inside))
        except Unavailable as deeper:
            raise Unavailable(f"{fault}; inside it {deeper}") from fault


def _judged(node: CallNode, row: CleanedOperation) -> CleanedOperation:
    """The row with the count of its shapes, and what that says of the recorder's own number: none at all is right only
    where there was nothing to count."""
    try:
        flop = shapes_flop(node)
    except Unavailable as fault:
        had = "nothing was counted" if row.deduplicated_flop is None else f"{row.deduplicated_flop} FLOP were recorded"
        return replace(row, cleaned_flop=None, verdict="unknown", reason=f"{had} and shapes give no count: {fault}")
    recorded = row.found_flop or 0
    verdict = "right" if recorded == flop else "under" if recorded < flop else "over"
    return replace(row, cleaned_flop=flop, verdict=verdict, reason=_why(row, flop))


def _why(row: CleanedOperation, flop: int) -> str:
    if row.deduplicated_flop is None and flop:
        return f"no number was recorded; the shapes give {flop} FLOP"
    if (row.deduplicated_flop or 0) != flop:
        return f"{row.deduplicated_flop} FLOP were recorded, the shapes give {flop}"
    if row.found_flop != row.deduplicated_flop:
        return f"{(row.found_flop or 0) - flop} FLOP were counted twice"
    return ""


def _left_out(run: Run, nodes: Sequence[CallNode]) -> Iterator[CleaningLog]:
    """A log row for each name of which the recorder counted what is no product, with its size."""
    sums: dict[tuple[str, str], list[int]] = {}
    for node in (inner for outer in nodes for inner in outer.walk()):
        if node.call.found_flop and not is_product(node.call.name):
            sums.setdefault((node.call.work, node.call.name), []).append(node.call.found_flop)
    for (work, name), numbers in sums.items():
        kind = kind_of_call(name) or "not understood: it"
        yield CleaningLog(
            step="products_alone",
            file=profile_file(run.cell_id, run.attempt),
            cell_id=run.cell_id,
            attempt=run.attempt,
            subject=f"{work} {name}",
            field="found_flop",
            before=to_text(sum(numbers)),
            after="",
            reason=f"left out, {len(numbers)} calls: {kind} is neither a convolution nor a matrix product",
        )
