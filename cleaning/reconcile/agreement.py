"""Each counter's forward and backward beside our own count of the same batch, with the size of the disagreement.

Model FLOP is compared with model FLOP: a counter's convolutions and matrix products, as far as it tells them apart,
against ours; its total, whatever it adds to them, stands beside it as a ratio of its own. Counts are exact, so that a
difference of one is a disagreement. It does not explain a difference; the operators and what is not understood do.

Each counter's number as a law of the batch, a·b + c, exactly; where it breaks, the operators that break it.

a is what one sample costs; c is what the batch does not change, as in parts that never see a sample (swin_v2's position
networks) or a counter that charges a bias once. Counts are whole numbers: the law holds to the unit or not at all,
nothing is fitted. Two batches decide a line and check nothing; the third does. Extrapolated counts came from this law
and are no evidence for it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.stats.summary import line
from analysis.utilization.counter_operators import OPERATORS
from analysis.utilization.numerators import OWN
from cleaning.counts.pipeline import by_counter_and_phase, is_model_flop, of_the_model
from results.records.cell import Run, identity
from results.records.counts import Agreement, BatchLaw, FlopCount
from results.records.rows import to_text

Groups = Mapping[tuple[str, str], Sequence[FlopCount]]


Traced = Callable[[str], int | None]
"""Phase → model FLOP of a table's operations in it; None without a table."""


def agreement(run: Run, counts: Sequence[FlopCount], traced: Traced) -> tuple[Agreement, ...]:
    """One row a counter and phase at the cell's own batch, extrapolated ones marked, failures with their reason.

    counts: this cell's, cleaned, totals among them. traced: of the operations of the cell's training step.

    `exact_flop` is what our own counter (`flopledger`) counted of the same batch: of the same graph, because all
    counters run in eval mode. Where there is none it is the operation table, summed over its phase forward (the loss
    left out) or backward. The two differ where training runs more than evaluation does: auxiliary heads of googlenet
    and inception_v3; the row of our own counter says so. None where there is neither.
    """
    groups = by_counter_and_phase(run, counts)
    exact = {phase: _exact(run, phase, groups, traced) for phase in {phase for _, phase in groups}}
    rows = []
    for (counter, phase), found in groups.items():
        notes = _of_the_table(exact[phase], traced(phase)) if counter == OWN else ""
        rows.append(_row(run, counter, phase, found, exact[phase], notes))
    return tuple(rows)


def _exact(run: Run, phase: str, groups: Groups, traced: Traced) -> int | None:
    """Our own model FLOP of one phase at the cell's batch."""
    own = _model_flop(OWN, _here(run, groups.get((OWN, phase), ())))
    return traced(phase) if own is None else own


def _here(run: Run, counts: Sequence[FlopCount]) -> list[FlopCount]:
    return [count for count in of_the_model(counts) if count.batch_size == run.batch_size]


def _model_flop(counter: str, here: Sequence[FlopCount]) -> int | None:
    """The sum of a counter's convolutions and matrix products; None if it does not tell them or one is broken.

    A counter that counted and found none gives 0: that is what it says, right or wrong.
    """
    products = [count for count in here if is_model_flop(count)]
    counted = products or [count for count in here if not count.operator]
    if counter not in OPERATORS or not counted or any(count.status != "ok" for count in counted):
        return None
    values = [count.flop for count in products]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _row(
    run: Run, counter: str, phase: str, counts: Sequence[FlopCount], exact_flop: int | None, notes: str
) -> Agreement:
    here = _here(run, counts)
    totals = [count for count in here if not count.operator]
    total = totals[0] if len(totals) == 1 else _without_total(run, counter, phase, counts, len(totals))
    model_flop = _model_flop(counter, here)
    broken = next((count for count in (total, *here) if count.status != "ok"), total)
    known = total if total.status == "ok" else dataclasses.replace(total, native_value=None, native_unit="", flop=None)
    apart = "" if counter in OPERATORS else f"note: {counter} does not tell convolutions and matrix products apart"
    missing = "" if exact_flop is not None else f"note: no count of our own of {phase} at a batch of {run.batch_size}"
    return Agreement(
        **identity(run, Agreement),
        counter=counter,
        phase=phase,
        native_value=known.native_value,
        native_unit=known.native_unit,
        total_flop=known.flop,
        model_flop=model_flop,
        exact_flop=exact_flop,
        difference_flop=None if model_flop is None or exact_flop is None else model_flop - exact_flop,
        ratio=_ratio(model_flop, exact_flop),
        total_ratio=_ratio(known.flop, exact_flop),
        extrapolated=total.extrapolated,
        not_understood=total.not_understood,
        status=broken.status,
        reason="; ".join(filter(None, (broken.reason, notes, "; ".join(filter(None, (apart, missing)))))),
    )


def _without_total(run: Run, counter: str, phase: str, counts: Sequence[FlopCount], totals: int) -> FlopCount:
    """A stand-in where the counter has no row, or several, for the whole model at this batch."""
    sizes = sorted({count.batch_size for count in of_the_model(counts)})
    reason = f"expected one total at a batch of {run.batch_size}, found {totals}; there are rows at {to_text(sizes)}"
    status = "invalid" if totals else "unavailable"
    return FlopCount(
        counter=counter, workload=run.model, batch_size=run.batch_size, phase=phase, status=status, reason=reason
    )


def _ratio(value: int | None, exact_flop: int | None) -> float | None:
    return None if value is None or not exact_flop else value / exact_flop


def _of_the_table(own_flop: int | None, traced_flop: int | None) -> str:
    """What our own counter's row says where the traced training step has another number."""
    if own_flop is None or traced_flop is None or own_flop == traced_flop:
        return ""
    return f"note: the step in training mode has {traced_flop - own_flop:+d} FLOP (auxiliary heads)"


ENOUGH = 3
"""Batches that decide whether a law holds."""

NAMED = 3
"""How many culprits a reason names; the others it counts."""

LEFT_OUT = "an operator that is not among these counts"

Series = dict[int, int]
"""Batch → FLOP, as counted."""


@dataclass(frozen=True)
class Law:
    """What one series of counts says. slope_flop a sample; None: the series is on no line, or has one point."""

    slope_flop: int | None
    constant_flop: int | None
    holds: bool | None
    reason: str


def batch_laws(run: Run, counts: Sequence[FlopCount]) -> tuple[BatchLaw, ...]:
    """One row for each counter, phase and operator of the whole model, its total first.

    counts: this cell's in FLOP, at every batch that was counted. Only operators that are among them can be named: give
    those that selection left out as well. A total that breaks the law, or has a constant, says which of its operators
    do. Rows of modules are of the smallest batch alone and say nothing here.
    """
    rows = []
    for (counter, phase), found in by_counter_and_phase(run, counts).items():
        series = _series(of_the_model(found))
        sizes = sorted(series.get("") or set().union(*series.values()))
        laws = {operator: law_of(points, sizes) for operator, points in sorted(series.items())}
        for operator, law in laws.items():
            named = "" if operator else culprits(law, laws)
            rows.append(
                BatchLaw(
                    **identity(run, BatchLaw),
                    counter=counter,
                    phase=phase,
                    operator=operator,
                    batches=tuple(sorted(series[operator])),
                    slope_flop=law.slope_flop,
                    constant_flop=law.constant_flop,
                    holds=law.holds,
                    reason="; ".join(filter(None, (law.reason, named))),
                )
            )
    return tuple(rows)


def _series(counts: Iterable[FlopCount]) -> dict[str, Series]:
    """Operator → its counted batches; the total's name is empty."""
    found: dict[str, Series] = {}
    for count in counts:
        if count.status == "ok" and not count.extrapolated and count.flop is not None:
            found.setdefault(count.operator, {})[count.batch_size] = count.flop
    return found


def law_of(points: Series, sizes: Sequence[int]) -> Law:
    """The line through all counted batches. sizes: the batches at which there ought to be a count."""
    counted = ", ".join(f"{size}: {points[size]}" for size in sorted(points))
    decided = len(sizes) >= ENOUGH
    broken = False if decided else None
    if missing := [str(size) for size in sizes if size not in points]:
        return Law(None, None, broken, f"counted {counted}, nothing at {', '.join(missing)}")
    if len(points) < 2:
        return Law(None, None, None, f"one batch gives no law: counted {counted}")
    law = line(points.items())
    if law is None:
        return Law(None, None, broken, f"on no line: counted {counted}")
    slope, constant = law
    if not slope.denominator == constant.denominator == 1:
        return Law(None, None, broken, f"no whole number of FLOP a sample: counted {counted}")
    reason = "" if decided else "two batches are always on a line"
    return Law(int(slope), int(constant), decided or None, reason)


def culprits(total: Law, laws: Mapping[str, Law]) -> str:
    """Which operators keep a total from the law, or give it its constant, in words. laws: by operator."""
    if total.holds is False:
        broken = [name for name, law in laws.items() if name and law.holds is False]
        return f"broken by {listed(broken)}" if broken else f"broken by {LEFT_OUT}"
    if total.constant_flop:
        constant = [f"{name} ({law.constant_flop})" for name, law in laws.items() if name and law.constant_flop]
        return f"note: the constant is of {listed(constant) if constant else LEFT_OUT}"
    return ""


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
