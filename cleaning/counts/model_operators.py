"""Keeps of a counter's operators the convolutions and matrix products, and logs what it leaves out with its size.

fvcore's total adds 2 to 5 per element of a normalisation to the multiply-adds of convolutions; model FLOP is the
latter alone, those inside attention and recurrent layers too, of forward and backward, of the model and of each of its
modules. The native total stays in its own row. Counters that give no operators pass through untouched.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.operators.registry import PRODUCTS
from analysis.utilization.counter_operators import OPERATORS, kind_of_operator
from cleaning.counts.conventions import entry
from cleaning.counts.steps import Outcome
from results.records.cell import Run
from results.records.counts import FlopCount
from results.records.vocabulary import PHASES, WHOLE


def model_operators(counts: tuple[FlopCount, ...]) -> Outcome[FlopCount]:
    """The totals, and the rows of operators that are model FLOP."""
    kept, dropped, log = [], [], []
    for count in counts:
        why = _why_left_out(count)
        if why is None:
            kept.append(count)
        else:
            dropped.append(count)
            log.append(entry("model_operators", count, "flop", count.flop, None, f"left out: {why}"))
    return Outcome(tuple(kept), tuple(dropped), tuple(log))


def is_model_flop(count: FlopCount) -> bool:
    """Whether this row is of one operator, and that is known for a convolution or matrix product."""
    return bool(count.operator) and kind_of_operator(count.counter, count.operator, count.native_unit) in PRODUCTS


def by_counter_and_phase(run: Run, counts: Sequence[FlopCount]) -> dict[tuple[str, str], list[FlopCount]]:
    """(counter, phase) → the rows of this attempt at this cell, of the model and of modules, at every batch.

    Counters are in the order in which the run named them, phases in that of a step.
    """
    found: dict[tuple[str, str], list[FlopCount]] = {}
    for count in counts:
        if (count.cell_id, count.attempt) == (run.cell_id, run.attempt):
            found.setdefault((count.counter, count.phase), []).append(count)
    counters, phases = (*run.counters, *(name for name, _ in found)), (*PHASES, *(phase for _, phase in found))
    return dict(sorted(found.items(), key=lambda item: (counters.index(item[0][0]), phases.index(item[0][1]))))


def of_the_model(counts: Sequence[FlopCount]) -> list[FlopCount]:
    """The rows that are of the whole model."""
    return [count for count in counts if count.scope == WHOLE]


def _why_left_out(count: FlopCount) -> str | None:
    if not count.operator or count.counter not in OPERATORS:
        return None
    kind = kind_of_operator(count.counter, count.operator, count.native_unit)
    if kind is None:
        return "not understood: the operator is in no table, so it is not counted"
    return None if kind in PRODUCTS else f"{kind} is neither a convolution nor a matrix product"
