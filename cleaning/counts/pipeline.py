"""From raw records to cleaned records, by small steps in order, with a log of what each changed and why.

Pure: it reads and writes no file, and cleaning what is clean changes nothing. To add a step, write a function from
records to `Outcome` and add one line to STEPS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleaning.counts.conventions import FLOP_COUNTS, extrapolation_checked, one_convention
from cleaning.counts.model_operators import model_operators
from cleaning.counts.steps import CleaningStep
from results.errors import Inconsistent
from results.records.counts import CleaningLog, FlopCount
from results.store.reading import RunData

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
