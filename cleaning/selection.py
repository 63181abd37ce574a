"""Keeps of a counter's operators the convolutions and matrix products, and logs what it leaves out with its size.

fvcore's total adds 2 to 5 per element of a normalisation to the multiply-adds of convolutions; model FLOP is the
latter alone. The native total stays in its own row. Counters that give no operators pass through untouched.
"""

from __future__ import annotations

from analysis.theory import MODEL_KINDS, OPERATORS, kind_of_operator
from cleaning.conventions import entry
from cleaning.steps import Outcome
from results.records import CleaningLog, FlopCount


def model_operators(counts: tuple[FlopCount, ...]) -> Outcome[FlopCount]:
    """The totals, and the rows of operators that are model FLOP."""
    kept, dropped, log = [], [], []
    for count in counts:
        why = _why_left_out(count)
        if why is None:
            kept.append(count)
        else:
            dropped.append(count)
            log.append(_left_out(count, why))
    return Outcome(tuple(kept), tuple(dropped), tuple(log))


def _why_left_out(count: FlopCount) -> str | None:
    if not count.operator or count.counter not in OPERATORS:
        return None
    kind = kind_of_operator(count.counter, count.operator, count.native_unit)
    if kind is None:
        return "not understood: the operator is in no table, so it is not counted"
    return None if kind in MODEL_KINDS else f"{kind} is neither a convolution nor a matrix product"


def _left_out(count: FlopCount, why: str) -> CleaningLog:
    return entry("model_operators", count, "flop", count.flop, None, f"left out: {why}")
