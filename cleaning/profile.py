"""Cleans recorded profiles: counts each product once, fills gaps and corrects wrong numbers, and logs every change.

`clean_profile` takes recorded calls and returns a `CleanedProfile`. A convolution is recorded up to five times
(aten::conv2d → aten::convolution → …); only the outermost call is the product. Where several nested calls have a
number, the outermost number counts; 0 means that the recorder had none. Gaps and wrong numbers are replaced by the
formulas of `analysis/` on recorded shapes. If the outer call lacks its shapes or settings, the products inside replace
it. A product without a count makes the FLOP of its phase unknown; the row has the reason. `profile_counts` takes
cleaned products and returns the model FLOP of one sample, one batch and an epoch. Times are not cleaned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from analysis.trace.operations import floating_dtype, is_product, kind_of_call, product_flop
from analysis.utilization.numerators import PROFILER
from analysis.utilization.work_times import epoch_parts, images_of
from cleaning.counts import known_sum, whole_sum
from results.errors import Inconsistent, Unavailable
from results.records.cell import PASSES, Run, identity
from results.records.counts import CleanedOperation, CleaningLog, ProfileCount, ProfiledOperation
from results.records.rows import to_text
from results.store.layout import profile_file

FORWARD = ("forward", "loss")
"""Phases of the forward pass."""

STEP = (*FORWARD, "backward")
"""Phases whose products are model FLOP of a training step."""

PHASES: tuple[tuple[str, tuple[str, ...]], ...] = (("forward", FORWARD), ("backward", ("backward",)))
"""Phases of a count, and the recorded phases that they sum."""

AT_LEAST = {
    "found": "found_at_least_flop",
    "deduplicated": "deduplicated_at_least_flop",
    "cleaned": "at_least_flop",
}
"""State → the field with the lower bound of its total."""

Traced = Callable[[Sequence[str]], int]
"""Phases → model FLOP of a trace's operations in these phases together."""


@dataclass(frozen=True)
class CleanedProfile:
    """One row per product, and what cleaning changed.

    outside_time_ratio: share of the time of product kernels that no recorded call launched. kernels: number of kernels,
    copies and fills in the step. busy_s: how long at least one of them ran. None: there are none.
    """

    operations: tuple[CleanedOperation, ...]
    log: tuple[CleaningLog, ...]
    outside_time_ratio: float | None = None
    kernels: int | None = None
    busy_s: float | None = None


def clean_profile(run: Run, calls: Sequence[ProfiledOperation], source: str = PROFILER) -> CleanedProfile:
    """Clean a recorder's calls of a run; the order of `calls` does not matter.

    Raises Inconsistent for calls whose nesting is not a forest.
    """
    nodes = forest(calls)
    products = [product for node in nodes for product in outermost(node)]
    owner = {(n.call.work, n.call.index): top.call.index for top in products for n in top.walk()}
    rows, left_out, once, repairs = [], [], [], []
    for node in products:
        call = node.call
        subject = " ".join(filter(None, (call.work, str(call.index), call.name, call.module)))
        numbers = [number for inner in node.walk() if (number := number_of(inner)) is not None]
        found_flop = sum(numbers) if numbers else None
        flop = None if found_flop is None else outermost_count(node)
        if flop != found_flop:
            once.append(
                _entry(
                    run,
                    "counted_once",
                    subject,
                    "deduplicated_flop",
                    found_flop,
                    flop,
                    _why_twice(node, found_flop, flop),
                )
            )
        cleaned, verdict, reason = _judged(node, found_flop, flop)
        if cleaned != flop:
            repairs.append(_entry(run, "repaired", subject, "cleaned_flop", flop, cleaned, reason))
        forward = None if call.forward_index is None else owner.get((call.work, call.forward_index), call.forward_index)
        row = CleanedOperation(
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
            found_flop=found_flop,
            deduplicated_flop=flop,
            cleaned_flop=cleaned,
            verdict=verdict,
            reason=reason,
            time_s=call.time_s,
        )
        rows.append(mark_outside_step(row))
    sums: dict[tuple[str, str], list[int]] = {}  # what the recorder counted of what is not a product, by name
    for call in (inner.call for outer in nodes for inner in outer.walk()):
        if call.found_flop and not is_product(call.name):
            sums.setdefault((call.work, call.name), []).append(call.found_flop)
    for (pass_name, name), numbers in sums.items():
        kind = kind_of_call(name) or "not understood: it"
        why = f"left out, {len(numbers)} calls: {kind} is neither a convolution nor a matrix product"
        left_out.append(_entry(run, "products_alone", f"{pass_name} {name}", "found_flop", sum(numbers), "", why))
    return CleanedProfile(tuple(rows), (*left_out, *once, *repairs))


def _entry(run: Run, step: str, subject: str, column: str, before: object, after: object, reason: str) -> CleaningLog:
    return CleaningLog(
        step=step,
        file=profile_file(run.cell_id, run.attempt),
        cell_id=run.cell_id,
        attempt=run.attempt,
        subject=subject,
        field=column,
        before=to_text(before),
        after=to_text(after),
        reason=reason,
    )


def mark_outside_step(row: CleanedOperation) -> CleanedOperation:
    """Return the row; for a product that is not model FLOP of a step, with a note that says so."""
    where = f"in {row.phase}" if row.phase else "in no phase"
    reason = f"{where}: no model FLOP of the step"
    if row.phase in STEP or reason in row.reason:
        return row
    return replace(row, reason="; ".join(word for word in (row.reason, reason) if word))


def why_unprofiled(run: Run, pass_name: str) -> str:
    """Explain why a pass has no profile; "" if it has one."""
    if pass_name in run.profiled:
        return ""
    return str(run.unprofiled.get(pass_name) or run.reason or "no profile of it was recorded")


def profile_counts(
    run: Run,
    operations: Sequence[CleanedOperation],
    traced: Traced | None,
    source: str = PROFILER,
    outside: Mapping[str, float | None] | None = None,
) -> tuple[ProfileCount, ...]:
    """Return model FLOP of forward and backward of each pass that has a profile or should have one, and of an epoch.

    operations: of one source of this run. traced: its own trace, of one batch. An epoch is counted if the method was
    requested: its full batches and the last one. outside: pass → CleanedProfile.outside_time_ratio.
    """
    wanted = {"one": "one" in run.methods, "batch": bool({"batch", "epoch"} & set(run.methods))}
    wanted["last"] = "epoch" in run.methods and "last" in epoch_parts(run)
    passes = [
        pass_name
        for pass_name in wanted
        if wanted[pass_name] or pass_name in run.profiled or pass_name in run.unprofiled
    ]
    blank = partial(ProfileCount, **identity(run, ProfileCount), source=source)
    rows: dict[tuple[str, str], ProfileCount] = {}
    for pass_name in passes:
        items, why = images_of(run, pass_name), why_unprofiled(run, pass_name)
        of_pass = partial(blank, work=pass_name, items=items, outside_time_ratio=(outside or {}).get(pass_name))
        recorded = [row for row in operations if row.work == pass_name]
        for phase, phases in PHASES:
            exact = traced(phases) if traced is not None and items == run.batch_size else None
            products = [row for row in recorded if row.phase in phases]
            columns = _columns(recorded, products, phase) | {"exact_flop": exact}
            rows[pass_name, phase] = of_pass(
                phase=phase, **({"status": "unavailable", "reason": why} if why else columns)
            )
    if "epoch" in run.methods:
        for phase, _ in PHASES:
            parts = [(rows[pass_name, phase], times) for pass_name, times in epoch_parts(run).items()]
            rows["epoch", phase] = blank(work="epoch", items=run.epoch_images, phase=phase, **_epoch(parts))
    return tuple(rows.values())


# --- counts ----------------------------------------------------------------------------------------------------------


def _columns(recorded: Sequence[CleanedOperation], rows: Sequence[CleanedOperation], phase: str) -> dict[str, Any]:
    """Count one pass's products in a phase. A state's total is unknown if one product has no number in it; the sum of
    the others is a lower bound. recorded: the products of all phases.

    unknown_time_ratio is None without products, and where a product without a count has no time.
    """
    columns: dict[str, Any] = {}
    for state, at_least in AT_LEAST.items():
        numbers = [getattr(row, f"{state}_flop") for row in rows]
        columns[f"{state}_flop"] = whole_sum(numbers) if rows else None
        columns[at_least] = (known_sum(numbers) or 0) if rows else None
    unknown = [row for row in rows if row.cleaned_flop is None]
    lost, whole_s = [row.time_s for row in unknown], sum(row.time_s or 0.0 for row in rows)
    ratio = 0.0 if rows and not lost else None
    if lost and all(lost):
        ratio = sum(time_s or 0.0 for time_s in lost) / whole_s
    doubts = [] if rows else [f"no convolution or matrix product was recorded in {phase}"]
    if unknown:
        first = f"{unknown[0].name} {unknown[0].module}: {unknown[0].reason}"
        doubts.append(f"{len(unknown)} of {len(rows)} products have no count, the first {first}")
    if homeless := sum(row.phase not in (*STEP, "optimizer", "recompute") for row in recorded):
        doubts.append(f"{homeless} products are in no phase and not counted")
    return columns | {
        "operations": len(rows),
        "removed": sum(row.found_flop != row.deduplicated_flop for row in rows),
        "repaired": sum(row.cleaned_flop not in (None, row.deduplicated_flop) for row in rows),
        "unknown": len(unknown),
        "unknown_calls": len(unknown),
        "unknown_time_ratio": ratio,
        "status": "ok" if rows and not unknown else "unavailable",
        "reason": "; ".join(doubts),
    }


def _epoch(parts: Sequence[tuple[ProfileCount, int]]) -> dict[str, Any]:
    """Count an epoch from its passes and how often it has each. A share of time is None where passes differ in it,
    since counts have no times to weight them by."""

    def multiplied(name: str) -> list[int | None]:
        values = [(getattr(part, name), times) for part, times in parts]
        return [None if value is None else value * times for value, times in values]

    columns: dict[str, Any] = {name: known_sum(multiplied(name)) for name in AT_LEAST.values()}
    columns |= {f"{state}_flop": whole_sum(multiplied(f"{state}_flop")) for state in AT_LEAST}
    if not any(part.work == "last" for part, _ in parts):
        columns["exact_flop"] = whole_sum(multiplied("exact_flop"))
    for name in ("operations", "removed", "repaired", "unknown", "unknown_calls"):
        columns[name] = known_sum(multiplied(name))
    for name in ("unknown_time_ratio", "outside_time_ratio"):
        shares = {getattr(part, name) for part, _ in parts}
        columns[name] = shares.pop() if len(shares) == 1 else None
    reasons = dict.fromkeys(f"{part.work}: {part.reason}" for part, _ in parts if part.reason)
    status = next((part.status for part, _ in parts if part.status != "ok"), "ok")
    return columns | {"status": status, "reason": "; ".join(reasons)}


# --- recorded calls --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CallNode:
    """One recorded call and its direct children, in order of start.

    Its phase, module and forward_index are its own, or else those of the call around it.
    """

    call: ProfiledOperation
    children: list[CallNode] = field(default_factory=list)

    def walk(self) -> Iterator[CallNode]:
        """Yield this node and all inside it, outer before inner."""
        yield self
        for child in self.children:
            yield from child.walk()


def forest(calls: Sequence[ProfiledOperation]) -> list[CallNode]:
    """Return a recording's outermost calls with all inside them, by pass and order of start.

    The order of `calls` does not matter. Raises Inconsistent for a repeated index, a missing parent, or calls that are
    inside themselves.
    """
    ordered = sorted(calls, key=lambda call: ((*PASSES, call.work).index(call.work), call.work, call.index))
    nodes = {(call.work, call.index): CallNode(call) for call in ordered}
    if len(nodes) != len(calls):
        raise Inconsistent(f"expected each call of a profile once, got {len(calls)} rows of {len(nodes)} calls")
    roots: list[CallNode] = []
    for node in nodes.values():
        call = node.call
        if call.parent is not None and (call.work, call.parent) not in nodes:
            raise Inconsistent(f"call {call.index} of {call.work} is inside {call.parent}, which was not recorded")
        (roots if call.parent is None else nodes[call.work, call.parent].children).append(node)
    reached = [node for root in roots for node in root.walk()]
    if len(reached) != len(calls):
        raise Inconsistent(f"{len(calls) - len(reached)} calls of a profile are inside themselves")
    for around in reached:
        for node in around.children:
            phase, module = node.call.phase or around.call.phase, node.call.module or around.call.module
            forward = around.call.forward_index if node.call.forward_index is None else node.call.forward_index
            node.call = replace(node.call, phase=phase, module=module, forward_index=forward)
    return roots


def outermost(node: CallNode) -> list[CallNode]:
    """Return the outermost products of a nest."""
    return [node] if is_product(node.call.name) else [top for child in node.children for top in outermost(child)]


def number_of(node: CallNode) -> int | None:
    """Return the recorder's count of a product; None for any other call."""
    return node.call.found_flop if is_product(node.call.name) else None


def _dtype(node: CallNode, depth: int = 0) -> tuple[int, str]:
    """Return the depth and dtype of the innermost product that names a dtype, since autocast casts inside."""
    call = node.call
    word = floating_dtype(call.input_shapes, call.input_dtypes) if is_product(call.name) else ""
    levels = [(depth if word else -1, word), *(_dtype(child, depth + 1) for child in node.children)]
    return max(levels, key=lambda level: level[0])


# --- numbers ---------------------------------------------------------------------------------------------------------


def outermost_count(node: CallNode) -> int:
    """Sum a nest's counts at the outermost level that has a number; 0 if none has."""
    return number_of(node) or sum(outermost_count(child) for child in node.children)


def _why_twice(node: CallNode, found_flop: int | None, flop: int | None) -> str:
    levels = [(inner, number) for inner in node.walk() if (number := number_of(inner))]
    counted = ", ".join(f"{inner.call.name} {number}" for inner, number in levels)
    reason = f"{(found_flop or 0) - (flop or 0)} FLOP were counted again inside: {counted}"
    for outer, number in levels:
        inside = sum(outermost_count(child) for child in outer.children)
        if inside > number:
            reason += f"; {outer.call.name} counts {number}, less than the {inside} inside it"
    return reason


def shapes_flop(node: CallNode) -> int:
    """Return the model FLOP of a product by its recorded shapes, else of the products inside it together.

    Raises Unavailable, with the reason, where neither is known.
    """
    try:
        return product_flop(node.call)
    except Unavailable as fault:
        inside = [product for child in node.children for product in outermost(child)]
        if not inside:
            raise
        try:
            return sum(map(shapes_flop, inside))
        except Unavailable as deeper:
            raise Unavailable(f"{fault}; inside it {deeper}") from fault


def _judged(node: CallNode, found_flop: int | None, once: int | None) -> tuple[int | None, str, str]:
    """Return the count by the product's shapes, the verdict on the recorder's number, and the reason. A missing number
    is right only where there was nothing to count."""
    try:
        flop = shapes_flop(node)
    except Unavailable as fault:
        had = "nothing was counted" if once is None else f"{once} FLOP were recorded"
        return None, "unknown", f"{had} and shapes give no count: {fault}"
    recorded, reason = found_flop or 0, ""
    if once is None and flop:
        reason = f"no number was recorded; the shapes give {flop} FLOP"
    elif (once or 0) != flop:
        reason = f"{once} FLOP were recorded, the shapes give {flop}"
    elif found_flop != once:
        reason = f"{recorded - flop} FLOP were counted twice"
    return flop, "right" if recorded == flop else "under" if recorded < flop else "over", reason
