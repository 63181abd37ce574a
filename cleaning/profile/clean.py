"""Recorded profiles cleaned: what a recorder counted of each product, once, with its gaps filled from recorded shapes.

From recorded calls to rows by small steps in order, with a log row for every change, and from rows to the model FLOP of
one sample, one batch and an epoch. Any recorder whose calls come as ProfiledOperations will do. Nothing is measured
here, and no product is left out in silence: one without a count makes its phase unknown, with the reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.trace.operations import kind_of_call
from analysis.utilization.numerators import PROFILER
from analysis.utilization.work_times import epoch_parts, images_of
from cleaning.counts.steps import Outcome, known_sum, whole_sum
from cleaning.profile.faults import counted_once, repaired
from cleaning.profile.instances import FORWARD, STEP, CallNode, Instance, forest, instances, no_products
from results.errors import Inconsistent
from results.records.cell import Run, identity
from results.records.counts import CleanedOperation, CleaningLog, ProfileCount
from results.records.operations import ProfiledOperation
from results.records.rows import to_text
from results.store.layout import profile_file

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

ProfileStep = Callable[[tuple[Instance, ...]], Outcome[Instance]]


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


def beside_the_step(products: tuple[Instance, ...]) -> Outcome[Instance]:
    """Says of products of an optimizer, of recomputation, or of no phase that they are no model FLOP of a step."""
    return Outcome(tuple(replace(product, row=mark_outside_step(product.row)) for product in products))


PROFILE_STEPS: tuple[tuple[str, ProfileStep], ...] = (
    ("counted_once", counted_once),
    ("repaired", repaired),
    ("beside_the_step", beside_the_step),
)
"""In order: what was counted twice is taken out before it is asked what is missing."""


def clean_profile(run: Run, calls: Sequence[ProfiledOperation], source: str = PROFILER) -> CleanedProfile:
    """Runs PROFILE_STEPS over what a recorder wrote of a run; the order of `calls` does not matter.

    Raises Inconsistent for calls that form no forest, or if a step lost or invented a product.
    """
    nodes = forest(calls)
    products, log = clean_instances(instances(run, nodes, source))
    rows = tuple(product.row for product in products)
    return CleanedProfile(rows, (*_left_out(run, nodes), *log))


def clean_instances(
    instances: tuple[Instance, ...], steps: Sequence[tuple[str, ProfileStep]] = PROFILE_STEPS
) -> tuple[tuple[Instance, ...], tuple[CleaningLog, ...]]:
    """Runs steps over products. Cleaning what is clean changes nothing. Raises Inconsistent if one was lost."""
    current = instances
    log: list[CleaningLog] = []
    for name, step in steps:
        outcome = step(current)
        if len(outcome.kept) + len(outcome.dropped) != len(current):
            left = f"{len(outcome.kept)} kept and {len(outcome.dropped)} dropped"
            raise Inconsistent(f"cleaning step {name}: {len(current)} products came, {left}")
        current = outcome.kept
        log.extend(outcome.log)
    return current, tuple(log)


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
    asked = {"one": "one" in run.methods, "batch": bool({"batch", "epoch"} & set(run.methods))}
    asked["last"] = "epoch" in run.methods and "last" in epoch_parts(run)
    works = [work for work in asked if asked[work] or work in run.profiled or work in run.unprofiled]
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
    found: dict[str, Any] = {}
    for state, at_least in AT_LEAST.items():
        numbers = [getattr(row, f"{state}_flop") for row in rows]
        found[f"{state}_flop"] = whole_sum(numbers) if rows else None
        found[at_least] = (known_sum(numbers) or 0) if rows else None
    return found


def _unknown_time(rows: Sequence[CleanedOperation]) -> float | None:
    """Of the products' time the share of those without a count; None where one of theirs was not recorded."""
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


# --- what is no product ----------------------------------------------------------------------------------------------


def mark_outside_step(row: CleanedOperation) -> CleanedOperation:
    """The row; of a product that is no model FLOP of a step, with words that say so."""
    place = f"in {row.phase}" if row.phase else "in no phase"
    reason = f"{place}: no model FLOP of the step"
    if row.phase in STEP or reason in row.reason:
        return row
    return replace(row, reason="; ".join(word for word in (row.reason, reason) if word))


def _left_out(run: Run, nodes: Sequence[CallNode]) -> tuple[CleaningLog, ...]:
    """A log row for each name of which the recorder counted what is no product, with its size."""
    sums: dict[tuple[str, str], list[int]] = {}
    for node in no_products(nodes):
        if node.call.found_flop:
            sums.setdefault((node.call.work, node.call.name), []).append(node.call.found_flop)
    return tuple(_removal_log(run, work, name, numbers) for (work, name), numbers in sums.items())


def _removal_log(run: Run, work: str, name: str, numbers: Sequence[int]) -> CleaningLog:
    kind = kind_of_call(name) or "not understood: it"
    return CleaningLog(
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
