"""Each counter's number as a law of the batch, a·b + c, exactly; where it breaks, the operators that break it.

a is what one sample costs; c is what the batch does not change, as in parts that never see a sample (swin_v2's position
networks) or a counter that charges a bias once. Counts are whole numbers: the law holds to the unit or not at all,
nothing is fitted. Two batches decide a line and check nothing; the third does. Extrapolated counts came from this law
and are no evidence for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.stats.affine import line
from cleaning.counts.pipeline import by_counter_and_phase, of_the_model
from results.records.cell import Run, identity
from results.records.counts import BatchLaw, FlopCount

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
