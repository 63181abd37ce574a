"""From raw records to cleaned records, by small steps in order, with a log of what each changed and why.

Pure: it reads and writes no file, and cleaning what is clean changes nothing. To add a step, write a function from
records to `Outcome` and add one line to STEPS.

Keeps of a counter's operators the convolutions and matrix products, and logs what it leaves out with its size.

fvcore's total adds 2 to 5 per element of a normalisation to the multiply-adds of convolutions; model FLOP is the
latter alone, those inside attention and recurrent layers too, of forward and backward, of the model and of each of its
modules. The native total stays in its own row. Counters that give no operators pass through untouched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.operators.registry import PRODUCTS
from analysis.utilization.counter_operators import OPERATORS, kind_of_operator
from cleaning.counts.conventions import FLOP_COUNTS, CleaningStep, Outcome, entry, extrapolation_checked, one_convention
from results.errors import Inconsistent
from results.records.cell import Run
from results.records.counts import CleaningLog, FlopCount
from results.records.rows import PHASES, WHOLE
from results.store.reading import RunData


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


STEPS: tuple[CleaningStep, ...] = (
    CleaningStep("one_convention", FLOP_COUNTS, one_convention),
    CleaningStep("extrapolation_checked", FLOP_COUNTS, extrapolation_checked),
    CleaningStep("model_operators", FLOP_COUNTS, model_operators),
)
"""In order: a count is compared and selected only once it is in FLOP."""


@dataclass(frozen=True)
class Cleaned:
    """Cleaned records by raw file name, what was dropped from each, and the log of all changes."""

    records: Mapping[str, tuple[Any, ...]]
    dropped: Mapping[str, tuple[Any, ...]]
    log: tuple[CleaningLog, ...]

    @property
    def flop_counts(self) -> tuple[FlopCount, ...]:
        """Counts in FLOP, of convolutions and matrix products, beside each counter's total."""
        return self.records[FLOP_COUNTS]


def clean(data: RunData) -> Cleaned:
    """Runs STEPS over the raw records of a run. Raises Inconsistent if a step lost or invented a record."""
    return clean_records({FLOP_COUNTS: data.records(FlopCount)})


def clean_records(raw: Mapping[str, Sequence[Any]], steps: Sequence[CleaningStep] = STEPS) -> Cleaned:
    """Runs steps over raw records given by the name of their file ("flop_counts.csv" → FlopCounts).

    Raises Inconsistent if a step lost or invented a record.
    """
    current = {file: tuple(rows) for file, rows in raw.items()}
    dropped: dict[str, tuple[Any, ...]] = {}
    log: list[CleaningLog] = []
    for step in steps:
        came = current.get(step.file, ())
        outcome = step.apply(came)
        if len(outcome.kept) + len(outcome.dropped) != len(came):
            left = f"{len(outcome.kept)} kept and {len(outcome.dropped)} dropped"
            raise Inconsistent(f"cleaning step {step.name}: {len(came)} records of {step.file} came, {left}")
        current[step.file] = outcome.kept
        dropped[step.file] = dropped.get(step.file, ()) + outcome.dropped
        log.extend(outcome.log)
    return Cleaned(current, dropped, tuple(log))
