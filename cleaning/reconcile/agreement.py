"""Compares each counter's model FLOP with our own count of the same batch, and checks how the count grows with the
batch.

`agreement` takes a run's cleaned counts and returns a row per counter and phase. `batch_laws` fits a·b + c to the
counts at several batch sizes b, and returns a row per counter, phase and operator. Counts are exact: a difference of
one FLOP is a disagreement, and the law must hold to the unit. a is the cost of one sample; c does not depend on the
batch. Two batch sizes determine a line, and a third one checks it. Extrapolated counts are no evidence for the law.
`cleaning/accounts/` explains why a counter differs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.counters import COUNTERS, kind_of_operator
from analysis.operators.registry import PRODUCTS
from analysis.utilization.numerators import OWN
from cleaning.counts import line, whole_sum
from results.records.cell import Run, identity
from results.records.counts import PHASES, WHOLE, Agreement, BatchLaw, FlopCount
from results.records.rows import replace_fields, to_text
from results.text_files import listed

Traced = Callable[[str], int | None]
"""Phase → model FLOP of an operation table's rows in this phase; None: there is no table."""


def by_counter_and_phase(run: Run, counts: Iterable[FlopCount]) -> dict[tuple[str, str], list[FlopCount]]:
    """Return (counter, phase) → the rows of the whole model of this attempt at this cell, at every batch.

    Counters are in the order in which the run named them, phases in the order of a step.
    """
    groups: dict[tuple[str, str], list[FlopCount]] = {}
    for count in counts:
        if (count.cell_id, count.attempt, count.scope) == (run.cell_id, run.attempt, WHOLE):
            groups.setdefault((count.counter, count.phase), []).append(count)
    counters, phases = (*run.counters, *(name for name, _ in groups)), (*PHASES, *(phase for _, phase in groups))
    return dict(sorted(groups.items(), key=lambda item: (counters.index(item[0][0]), phases.index(item[0][1]))))


def agreement(run: Run, counts: Sequence[FlopCount], traced: Traced) -> tuple[Agreement, ...]:
    """Return one row per counter and phase at the cell's own batch: extrapolated ones marked, failures with their
    reason.

    counts: this cell's, cleaned, including totals. traced: of the operations of the cell's training step.

    `exact_flop` is our own counter's (`flopledger`) count of the same batch and graph, since all counters run in eval
    mode; else the operation table's, summed over its phase forward (without the loss) or backward; else None. The two
    differ where training runs more than evaluation, as with the auxiliary heads of googlenet and inception_v3; our own
    counter's row says so.
    """
    groups = by_counter_and_phase(run, counts)
    here = {key: [count for count in rows if count.batch_size == run.batch_size] for key, rows in groups.items()}
    rows = []
    for (counter, phase), counted in groups.items():
        own, table_flop = _model_flop(OWN, here.get((OWN, phase), ())), traced(phase)
        note = ""
        if counter == OWN and own is not None and table_flop is not None and own != table_flop:
            note = f"note: the step in training mode has {table_flop - own:+d} FLOP (auxiliary heads)"
        totals = [count for count in here[counter, phase] if not count.operator]
        if len(totals) == 1:
            total = totals[0]
        else:  # the counter has no row, or several, for the whole model at this batch
            sizes = to_text(sorted({count.batch_size for count in counted}))
            why = f"expected one total at a batch of {run.batch_size}, found {len(totals)}; there are rows at {sizes}"
            status = "invalid" if totals else "unavailable"
            blank = FlopCount(counter=counter, workload=run.model, batch_size=run.batch_size, phase=phase)
            total = replace(blank, status=status, reason=why)
        rows.append(_row(run, total, here[counter, phase], table_flop if own is None else own, note))
    return tuple(rows)


def _model_flop(counter: str, here: Sequence[FlopCount]) -> int | None:
    """Sum a counter's convolutions and matrix products; None if it does not name them or one is broken.

    A counter that counted and found none gives 0, right or wrong.
    """
    products = [
        count
        for count in here
        if count.operator and kind_of_operator(count.counter, count.operator, count.native_unit) in PRODUCTS
    ]
    counted = products or [count for count in here if not count.operator]
    if counter not in COUNTERS or not counted or any(count.status != "ok" for count in counted):
        return None
    return whole_sum(count.flop for count in products)


def _row(run: Run, total: FlopCount, here: Sequence[FlopCount], exact_flop: int | None, note: str) -> Agreement:
    counter, phase, is_ok = total.counter, total.phase, total.status == "ok"
    model_flop = _model_flop(counter, here)
    broken = next((count for count in (total, *here) if count.status != "ok"), total)
    apart = "" if counter in COUNTERS else f"note: {counter} does not tell convolutions and matrix products apart"
    missing = "" if exact_flop is not None else f"note: no count of our own of {phase} at a batch of {run.batch_size}"
    return Agreement(
        **identity(run, Agreement),
        counter=counter,
        phase=phase,
        native_value=total.native_value if is_ok else None,
        native_unit=total.native_unit if is_ok else "",
        total_flop=total.flop if is_ok else None,
        model_flop=model_flop,
        exact_flop=exact_flop,
        difference_flop=None if model_flop is None or exact_flop is None else model_flop - exact_flop,
        ratio=None if model_flop is None or not exact_flop else model_flop / exact_flop,
        total_ratio=None if not is_ok or total.flop is None or not exact_flop else total.flop / exact_flop,
        extrapolated=total.extrapolated,
        not_understood=total.not_understood,
        status=broken.status,
        reason="; ".join(filter(None, (broken.reason, note, apart, missing))),
    )


ENOUGH = 3
"""Number of batches that decide whether a law holds."""

NAMED = 3
"""Maximum number of culprits that a reason names; it counts the others."""

LEFT_OUT = "an operator that is not among these counts"

Series = dict[int, int]
"""Batch → FLOP, as counted."""


def batch_laws(run: Run, counts: Sequence[FlopCount]) -> tuple[BatchLaw, ...]:
    """Return one row for each counter, phase and operator of the whole model, its total first.

    counts: this cell's in FLOP, at every counted batch, with operators that selection left out: only these can be
    named. A total that breaks the law, or has a constant, names the operators that do.
    """
    rows: list[BatchLaw] = []
    for (counter, phase), counted in by_counter_and_phase(run, counts).items():
        series: dict[str, Series] = {}
        for count in counted:
            if count.status == "ok" and not count.extrapolated and count.flop is not None:
                series.setdefault(count.operator, {})[count.batch_size] = count.flop
        sizes = sorted(series.get("") or set().union(*series.values()))
        blank = BatchLaw(**identity(run, BatchLaw), counter=counter, phase=phase, operator="", batches=())
        laws = {
            operator: replace_fields(
                blank, {"operator": operator, "batches": tuple(sorted(points)), **law_of(points, sizes)}
            )
            for operator, points in sorted(series.items())
        }
        if total := laws.get(""):
            laws[""] = replace(total, reason="; ".join(filter(None, (total.reason, culprits(total, laws)))))
        rows += laws.values()
    return tuple(rows)


def law_of(points: Series, sizes: Sequence[int]) -> dict[str, Any]:
    """Return fields of BatchLaw: the line through all counted batches. sizes: the batches that should have a count."""
    counted = ", ".join(f"{size}: {points[size]}" for size in sorted(points))
    decided = len(sizes) >= ENOUGH
    law = None
    if missing := [str(size) for size in sizes if size not in points]:
        why = f"counted {counted}, nothing at {', '.join(missing)}"
    elif len(points) < 2:
        return {"reason": f"one batch gives no law: counted {counted}"}
    elif (law := line(points.items())) is None:
        why = f"on no line: counted {counted}"
    elif not law[0].denominator == law[1].denominator == 1:
        why, law = f"no whole number of FLOP a sample: counted {counted}", None
    if law is None:
        return {"holds": False if decided else None, "reason": why}
    why = "" if decided else "two batches are always on a line"
    return {"slope_flop": int(law[0]), "constant_flop": int(law[1]), "holds": decided or None, "reason": why}


def culprits(total: BatchLaw, laws: Mapping[str, BatchLaw]) -> str:
    """Describe which operators keep a total from the law, or give it its constant. laws: by operator."""
    if total.holds is False:
        broken = [name for name, law in laws.items() if name and law.holds is False]
        return f"broken by {listed(broken, NAMED)}" if broken else f"broken by {LEFT_OUT}"
    if total.constant_flop:
        constant = [f"{name} ({law.constant_flop})" for name, law in laws.items() if name and law.constant_flop]
        return f"note: the constant is of {listed(constant, NAMED) if constant else LEFT_OUT}"
    return ""
