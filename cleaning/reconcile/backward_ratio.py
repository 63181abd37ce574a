"""FLOP of the backward pass ÷ FLOP of the forward pass: by model, kind, module and operation, and from every source.

The rule of thumb is 2. It is exact for every product but the network's first, whose input needs no gradient, so that a
model has 2 - (share of its first product), which stands beside each model's ratio. From a profile: as found and as
cleaned, for one sample, one batch and an epoch. From our own trace: all kinds, products by model FLOP and the rest by
other FLOP. From the counters that have a backward pass: their totals, in whatever they count.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analysis.operators import registry
from analysis.operators.cost import Cost
from analysis.utilization.numerators import OWN, PROFILER
from analysis.utilization.work_times import epoch_parts
from cleaning.counts import known_sum, whole_sum
from cleaning.profile import FORWARD, STEP, why_unprofiled
from results.records.cell import Run, identity
from results.records.counts import CleanedOperation, FlopCount, Operation, Ratio
from results.records.rows import WHOLE, changed

LEVELS = ("model", "kind", "module", "operation")
STATES = ("found", "cleaned")

Key = tuple[str, str]
"""(level, name)."""


@dataclass
class Sides:
    """The counts of one key, forward and backward; None: one of them is unknown."""

    forward: list[int | None] = field(default_factory=list)
    backward: list[int | None] = field(default_factory=list)


Table = dict[Key, Sides]


@dataclass(frozen=True)
class Closed:
    """The exact ratio of a model: 2 - first ÷ forward, or why that is not its ratio."""

    ratio: float | None
    reason: str = ""


@dataclass(frozen=True)
class TableSides:
    """What ratios need of a table: its own rows, of no cell yet, and the exact ratio of its model."""

    rows: tuple[Ratio, ...]
    closed: Closed


def sides_of(table: Sequence[Operation] | None, costs: Sequence[Cost] | None = None) -> TableSides:
    """Of one table, for all runs that have it. costs: of each operation, where they are known."""
    if not table:
        return TableSides((), Closed(None, "no trace of this cell: no exact ratio"))
    costs = [registry.cost(operation) for operation in table] if costs is None else costs
    closed, blank = _closed_form(table, costs), replace(_OF_NO_CELL, source=OWN, state="cleaned")
    return TableSides(tuple(_beside(row, closed) for row in _rows(blank, _table_sides(table, costs))), closed)


def cell_ratios(
    run: Run, operations: Sequence[CleanedOperation], of_table: TableSides, counts: Sequence[FlopCount]
) -> tuple[Ratio, ...]:
    """All ratios of a run. of_table: `sides_of` its own trace, which other runs may have, too."""
    profile, own = profile_ratios(run, operations, of_table, PROFILER), identity(run, Ratio)
    counted = (_beside(row, of_table.closed) for row in _of_counters(run, counts))
    return (*profile, *(changed(row, own) for row in of_table.rows), *counted)


def profile_ratios(
    run: Run, operations: Sequence[CleanedOperation], of_table: TableSides, source: str
) -> tuple[Ratio, ...]:
    """The ratios of one source's profile alone. operations: of this source; of_table: of the run's own trace."""
    return tuple(_beside(row, of_table.closed) for row in _of_profile(run, operations, source))


def _closed_form(table: Sequence[Operation], known: Sequence[Cost]) -> Closed:
    """2 - (FLOP of the first product) ÷ (FLOP of the forward pass), from the forward pass of a trace alone.

    It holds where one product takes the network's input and every other one is asked for both gradients. The trace's
    own backward pass is only asked whether that is so, product by product.
    """
    costs = {operation.index: int(cost.model_flop) for operation, cost in zip(table, known, strict=True)}
    products = [o for o in table if o.phase in FORWARD and costs[o.index]]
    if not products:
        return Closed(None, "no product in the forward pass of the trace")
    backward: dict[int | None, int] = {}
    hooks = sum(costs[o.index] for o in table if o.phase == "backward" and o.in_hook)
    for operation in table:
        if operation.phase == "backward" and not operation.in_hook:
            backward[operation.forward_index] = backward.get(operation.forward_index, 0) + costs[operation.index]
    first = min(products, key=lambda operation: operation.index)
    odd = [o for o in products if backward.get(o.index, 0) != costs[o.index] * (1 if o is first else 2)]
    unlinked = sum(flop for index, flop in backward.items() if index not in {o.index for o in products})
    if odd or unlinked or hooks:
        return Closed(None, _why_not(odd, first, backward, costs, {_HOOKS: hooks, _UNLINKED: unlinked}))
    return Closed(2 - costs[first.index] / sum(costs[o.index] for o in products))


_HOOKS, _UNLINKED = "are run by hooks on gradients", "belong to no product of forward"


def _why_not(
    odd: Sequence[Operation],
    first: Operation,
    backward: Mapping[int | None, int],
    costs: Mapping[int, int],
    besides: Mapping[str, int],
) -> str:
    """Where 2 - first ÷ forward does not apply, product by product (three of them named). besides: what else backward
    holds → its FLOP."""
    reasons = []
    for operation in odd[:3]:
        times = backward.get(operation.index, 0) / costs[operation.index]
        reasons.append(f"{operation.name} {operation.module} has {times:.4g}, not {1 if operation is first else 2}")
    more = [f"{len(odd) - 3} more"] if len(odd) > 3 else []
    loose = [f"{flop} FLOP of backward {words}" for words, flop in besides.items() if flop]
    return "2 - first ÷ forward does not apply: " + "; ".join([*reasons, *more, *loose])


# --- from a profile --------------------------------------------------------------------------------------------------


def _of_profile(run: Run, operations: Sequence[CleanedOperation], source: str) -> Iterator[Ratio]:
    for work in ("one", "batch", "epoch"):
        parts = {work: 1} if work != "epoch" else epoch_parts(run)
        if work not in run.methods and (work == "epoch" or work not in run.profiled):
            continue
        missing = [f"{part}: {why_unprofiled(run, part)}" for part in parts if part not in run.profiled]
        blank = _blank(run, operations[0].source if operations else source, work)
        if missing:
            broken = replace(blank, status="unavailable", reason="; ".join(missing), level="model")
            yield from (replace(broken, state=state) for state in STATES)
            continue
        for state in STATES:
            yield from _rows(replace(blank, state=state), _profile_sides(operations, parts, state))


def _profile_sides(operations: Sequence[CleanedOperation], parts: Mapping[str, int], state: str) -> Table:
    forward = {(row.work, row.index): row for row in operations if row.phase in FORWARD}
    table: Table = {}
    for row in operations:
        if row.work not in parts or row.phase not in STEP:
            continue
        flop = row.found_flop if state == "found" else row.cleaned_flop
        flop = None if flop is None else flop * parts[row.work]
        of = row if row.phase in FORWARD or row.forward_index is None else forward.get((row.work, row.forward_index))
        owner = of or row
        names = {"model": "", "kind": owner.kind, "module": row.module or owner.module, "operation": owner.name}
        _add(table, names, row.phase in FORWARD, flop)
    return table


# --- from our own trace ----------------------------------------------------------------------------------------------


def _table_sides(table: Sequence[Operation], costs: Sequence[Cost]) -> Table:
    by_index = {operation.index: operation for operation in table if operation.phase in FORWARD}
    sides: Table = {}
    for operation, cost in zip(table, costs, strict=True):
        if operation.phase not in STEP:
            continue
        owner = (
            by_index.get(-1 if operation.forward_index is None else operation.forward_index, operation)
            if operation.phase == "backward"
            else operation
        )
        if cost.model_flop and owner.kind not in registry.PRODUCTS:
            owner = operation
        product = owner.kind in registry.PRODUCTS
        flop = int(cost.model_flop if product else cost.other_flop)
        if not flop:
            continue
        names = {"kind": owner.kind, "operation": owner.name}
        if product:
            names |= {"model": "", "module": operation.module or owner.module}
        _add(sides, names, operation.phase in FORWARD, flop)
    return sides


# --- from counters ---------------------------------------------------------------------------------------------------


def _of_counters(run: Run, counts: Sequence[FlopCount]) -> Iterator[Ratio]:
    here = [count for count in counts if (count.cell_id, count.attempt) == (run.cell_id, run.attempt)]
    totals = [count for count in here if (count.scope, count.operator) == (WHOLE, "")]
    for counter in dict.fromkeys(count.counter for count in totals):
        mine = [count for count in totals if count.counter == counter]
        passes = {
            phase: max(
                [c for c in mine if c.phase == phase],
                key=lambda count: (count.batch_size == run.batch_size, count.batch_size),
                default=None,
            )
            for phase in ("forward", "backward")
        }
        forward, backward = passes["forward"], passes["backward"]
        if backward is None or forward is None:
            continue
        blank = replace(_blank(run, counter, ""), state="found", level="model")
        broken = [count for count in (forward, backward) if count.status != "ok" or count.flop is None]
        if forward.batch_size != backward.batch_size:
            yield replace(blank, status="unavailable", reason="forward and backward are of different batches")
        elif broken:
            yield replace(blank, status="unavailable", reason=broken[0].reason or broken[0].status)
        else:
            yield _divided(blank, forward.flop, backward.flop)


# --- rows ------------------------------------------------------------------------------------------------------------


def _add(table: Table, names: Mapping[str, str], is_forward: bool, flop: int | None) -> None:
    for level, name in names.items():
        sides = table.setdefault((level, name), Sides())
        (sides.forward if is_forward else sides.backward).append(flop)


def _rows(blank: Ratio, table: Table) -> Iterator[Ratio]:
    """A row a key, in the order of LEVELS and of first appearance. A side with a call without a count has no total."""
    for level, name in sorted(table, key=lambda key: LEVELS.index(key[0])):
        sides = table[level, name]
        forward, backward = (whole_sum(counts) if counts else None for counts in (sides.forward, sides.backward))
        own = {
            "level": level,
            "name": name,
            "forward_at_least_flop": (known_sum(sides.forward) or 0) if sides.forward else None,
            "backward_at_least_flop": (known_sum(sides.backward) or 0) if sides.backward else None,
            "unknown_calls": [*sides.forward, *sides.backward].count(None),
        }
        yield _divided(changed(blank, own), forward, backward, sides)


def _divided(row: Ratio, forward: int | None, backward: int | None, sides: Sides | None = None) -> Ratio:
    """The row with its quotient, or with why there is none; what is missing in a number is said beside it."""
    gaps = _gaps(sides or Sides([forward], [backward]))
    own = {"forward_flop": forward, "backward_flop": backward, "reason": gaps}
    if forward and backward is not None:
        return changed(row, {**own, "ratio": backward / forward})
    nothing = [] if forward != 0 else ["0 FLOP in forward"]
    return changed(row, {**own, "status": "unavailable", "reason": "; ".join([*nothing, *([gaps] if gaps else [])])})


def _gaps(sides: Sides) -> str:
    """Where a sum is of fewer calls than there are, or of none."""
    gaps = []
    for phase, counts in (("forward", sides.forward), ("backward", sides.backward)):
        missing = sum(count is None for count in counts)
        if not counts:
            gaps.append(f"nothing of it in {phase}")
        elif missing:
            gaps.append(f"{missing} of {len(counts)} calls have no count in {phase}")
    return "; ".join(gaps)


_OF_NO_CELL = Ratio(
    cell_id="", attempt=0, model="", batch_size=0, precision="", source="", work="", state="", level="", name=""
)


def _blank(run: Run, source: str, work: str) -> Ratio:
    return replace(_OF_NO_CELL, **identity(run, Ratio), source=source, work=work)


def _beside(row: Ratio, closed: Closed) -> Ratio:
    """A model's ratio beside its exact value, or why it has none."""
    if row.level != "model":
        return row
    reason = "; ".join(word for word in (row.reason, closed.reason) if word)
    return changed(row, {"exact_ratio": closed.ratio, "reason": reason})
