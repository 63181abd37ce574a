"""Computes FLOP of the backward pass ÷ FLOP of the forward pass, to check the rule of thumb that this ratio is 2.

`cell_ratios` takes a run's cleaned products, the ratios of its operation table (`sides_of`) and the counters' rows. It
returns `Ratio`s by model, kind, module and operation. The first product has a ratio of 1, since the network's input
needs no gradient. If all other products compute both gradients, the model's exact ratio is 2 - (share of its first
product). Otherwise the row has the reason why this formula does not apply. Recorded profiles give ratios before
("found") and after cleaning ("cleaned"), for one sample, one batch and an epoch. Our own trace gives products by model
FLOP, other operators by other FLOP. Counters with a backward pass give the ratio of their totals.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.operators import registry
from analysis.operators.cost import Cost
from analysis.utilization.numerators import OWN, PROFILER
from analysis.utilization.work_times import epoch_parts
from cleaning.counts import known_sum, whole_sum
from cleaning.profile import FORWARD, STEP, why_unprofiled
from results.records.cell import Run, identity
from results.records.counts import WHOLE, CleanedOperation, FlopCount, Operation, Ratio
from results.records.rows import replace_fields

LEVELS = ("model", "kind", "module", "operation")
STATES = ("found", "cleaned")

Part = tuple[Mapping[str, str], bool, int | None]
"""A call as (level → the name under which its FLOP are summed, whether it is in the forward pass, its FLOP). None:
unknown."""


@dataclass(frozen=True)
class TableSides:
    """The ratios of one operation table, which several runs may share, and the model's exact ratio.

    rows: the ratios, without a cell. exact_ratio: 2 - (first product's FLOP) ÷ (forward FLOP). reason: why there is
    none.
    """

    rows: tuple[Ratio, ...]
    exact_ratio: float | None
    reason: str = ""


def sides_of(table: Sequence[Operation] | None, costs: Sequence[Cost] | None = None) -> TableSides:
    """Compute the ratios of one operation table, for all runs that share it. costs: cost of each operation; None: not
    yet computed."""
    if not table:
        return TableSides((), None, "no trace of this cell: no exact ratio")
    costs = [registry.cost(operation) for operation in table] if costs is None else costs
    sides = _closed_form(
        table, {operation.index: int(cost.model_flop) for operation, cost in zip(table, costs, strict=True)}
    )
    rows = _rows(replace(_OF_NO_CELL, source=OWN, state="cleaned"), _traced(table, costs))
    return replace(sides, rows=tuple(_with_exact(row, sides) for row in rows))


def cell_ratios(
    run: Run, operations: Sequence[CleanedOperation], of_table: TableSides, counts: Sequence[FlopCount]
) -> tuple[Ratio, ...]:
    """Return all ratios of a run. of_table: `sides_of` its own trace, which other runs may share."""
    profile, own = profile_ratios(run, operations, of_table, PROFILER), identity(run, Ratio)
    counted = (_with_exact(row, of_table) for row in _of_counters(run, counts))
    return (*profile, *(replace_fields(row, own) for row in of_table.rows), *counted)


def profile_ratios(
    run: Run, operations: Sequence[CleanedOperation], of_table: TableSides, source: str
) -> tuple[Ratio, ...]:
    """Return the ratios of one source's profile only. operations: of this source; of_table: of the run's own trace."""
    rows: list[Ratio] = []
    for pass_name in ("one", "batch", "epoch"):
        parts = {pass_name: 1} if pass_name != "epoch" else epoch_parts(run)
        if pass_name not in run.methods and (pass_name == "epoch" or pass_name not in run.profiled):
            continue
        missing = [f"{part}: {why_unprofiled(run, part)}" for part in parts if part not in run.profiled]
        blank = _blank(run, operations[0].source if operations else source, pass_name)
        for state in STATES:
            if missing:
                broken = {"status": "unavailable", "reason": "; ".join(missing), "level": "model", "state": state}
                rows.append(replace_fields(blank, broken))
            else:
                rows += _rows(replace_fields(blank, {"state": state}), _profiled(operations, parts, state))
    return tuple(_with_exact(row, of_table) for row in rows)


def _closed_form(table: Sequence[Operation], costs: Mapping[int, int]) -> TableSides:
    """Compute 2 - (FLOP of the first product) ÷ (FLOP of the forward pass), from a trace's forward pass.

    It holds where one product takes the network's input and every other one computes both gradients. The trace's
    backward pass only confirms this, product by product; the first three that differ are named.
    """
    products = [o for o in table if o.phase in FORWARD and costs[o.index]]
    if not products:
        return TableSides((), None, "no product in the forward pass of the trace")
    backward: Counter[int | None] = Counter()
    hooks = 0
    for operation in table:
        if operation.phase == "backward" and operation.in_hook:
            hooks += costs[operation.index]
        elif operation.phase == "backward":
            backward[operation.forward_index] += costs[operation.index]
    first = min(products, key=lambda operation: operation.index)
    odd = [o for o in products if backward[o.index] != costs[o.index] * (1 if o is first else 2)]
    unlinked = backward.total() - sum(backward[o.index] for o in products)
    if not odd and not unlinked and not hooks:
        return TableSides((), 2 - costs[first.index] / sum(costs[o.index] for o in products))
    reasons = [
        f"{o.name} {o.module} has {backward[o.index] / costs[o.index]:.4g}, not {1 if o is first else 2}"
        for o in odd[:3]
    ]
    reasons += [f"{len(odd) - 3} more"] if len(odd) > 3 else []
    reasons += [f"{hooks} FLOP of backward are run by hooks on gradients"] if hooks else []
    reasons += [f"{unlinked} FLOP of backward belong to no product of forward"] if unlinked else []
    return TableSides((), None, "2 - first ÷ forward does not apply: " + "; ".join(reasons))


def _profiled(operations: Sequence[CleanedOperation], parts: Mapping[str, int], state: str) -> Iterator[Part]:
    """Yield the calls of a profile. parts: pass → how often it occurs in the requested one."""
    forward = {(row.work, row.index): row for row in operations if row.phase in FORWARD}
    for row in operations:
        if row.work not in parts or row.phase not in STEP:
            continue
        flop = row.found_flop if state == "found" else row.cleaned_flop
        is_forward, owner = row.phase in FORWARD, row
        if not is_forward and row.forward_index is not None:
            owner = forward.get((row.work, row.forward_index), row)
        names = {"model": "", "kind": owner.kind, "module": row.module or owner.module, "operation": owner.name}
        yield names, is_forward, None if flop is None else flop * parts[row.work]


def _traced(table: Sequence[Operation], costs: Sequence[Cost]) -> Iterator[Part]:
    """Yield the calls of our own trace: products by model FLOP, other kinds by other FLOP."""
    forward = {operation.index: operation for operation in table if operation.phase in FORWARD}
    for operation, cost in zip(table, costs, strict=True):
        if operation.phase not in STEP:
            continue
        owner = operation
        if operation.phase == "backward" and operation.forward_index is not None:
            owner = forward.get(operation.forward_index, operation)
        if cost.model_flop and owner.kind not in registry.PRODUCTS:
            owner = operation
        is_product = owner.kind in registry.PRODUCTS
        flop = int(cost.model_flop if is_product else cost.other_flop)
        if flop:
            names = {"kind": owner.kind, "operation": owner.name}
            names |= {"model": "", "module": operation.module or owner.module} if is_product else {}
            yield names, operation.phase in FORWARD, flop


def _of_counters(run: Run, counts: Sequence[FlopCount]) -> Iterator[Ratio]:
    """Yield the totals of counters that have a backward pass: at the cell's batch, else at the largest."""
    passes: dict[str, dict[str, FlopCount]] = {}
    for count in sorted(counts, key=lambda count: (count.batch_size == run.batch_size, count.batch_size)):
        if (count.cell_id, count.attempt, count.scope, count.operator) == (run.cell_id, run.attempt, WHOLE, ""):
            passes.setdefault(count.counter, {})[count.phase] = count
    for counter in dict.fromkeys(count.counter for count in counts if count.counter in passes):
        if not {"forward", "backward"} <= passes[counter].keys():
            continue
        forward, backward = passes[counter]["forward"], passes[counter]["backward"]
        blank = replace(_blank(run, counter, ""), state="found", level="model")
        broken = [count for count in (forward, backward) if count.status != "ok" or count.flop is None]
        if forward.batch_size != backward.batch_size:
            yield replace(blank, status="unavailable", reason="forward and backward are of different batches")
        elif broken:
            yield replace(blank, status="unavailable", reason=broken[0].reason or broken[0].status)
        else:
            yield _divided(blank, [forward.flop], [backward.flop])


def _rows(blank: Ratio, parts: Iterable[Part]) -> Iterator[Ratio]:
    """Yield a row per level and name, in the order of LEVELS and of first appearance."""
    table: dict[tuple[str, str], tuple[list[int | None], list[int | None]]] = {}
    for names, is_forward, flop in parts:
        for key in names.items():
            table.setdefault(key, ([], []))[0 if is_forward else 1].append(flop)
    for level, name in sorted(table, key=lambda key: LEVELS.index(key[0])):
        forward, backward = table[level, name]
        own = {
            "level": level,
            "name": name,
            "forward_at_least_flop": (known_sum(forward) or 0) if forward else None,
            "backward_at_least_flop": (known_sum(backward) or 0) if backward else None,
            "unknown_calls": [*forward, *backward].count(None),
        }
        yield _divided(replace_fields(blank, own), forward, backward)


def _divided(row: Ratio, forward: Sequence[int | None], backward: Sequence[int | None]) -> Ratio:
    """Return the row with its quotient or the reason why there is none, and a note on what a number lacks. A side has
    no total if one of its calls has no count."""
    sides = {"forward": forward, "backward": backward}
    below, above = (whole_sum(counts) if counts else None for counts in sides.values())
    gaps = []
    for phase, counts in sides.items():
        missing = list(counts).count(None)
        if missing:
            gaps.append(f"{missing} of {len(counts)} calls have no count in {phase}")
        elif not counts:
            gaps.append(f"nothing of it in {phase}")
    own: dict[str, Any] = {"forward_flop": below, "backward_flop": above}
    if below and above is not None:
        return replace_fields(row, {**own, "ratio": above / below, "reason": "; ".join(gaps)})
    nothing = [] if below != 0 else ["0 FLOP in forward"]
    return replace_fields(row, {**own, "status": "unavailable", "reason": "; ".join([*nothing, *gaps])})


_OF_NO_CELL = Ratio(
    cell_id="", attempt=0, model="", batch_size=0, precision="", source="", work="", state="", level="", name=""
)


def _blank(run: Run, source: str, pass_name: str) -> Ratio:
    return replace(_OF_NO_CELL, **identity(run, Ratio), source=source, work=pass_name)


def _with_exact(row: Ratio, of_table: TableSides) -> Ratio:
    """Add the exact value to a model's ratio, or why it has none."""
    if row.level != "model":
        return row
    reason = "; ".join(filter(None, (row.reason, of_table.reason)))
    return replace_fields(row, {"exact_ratio": of_table.exact_ratio, "reason": reason})
