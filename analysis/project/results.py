"""A paper's printed results beside what follows from its printed inputs, with a verdict for each.

A paper is a folder of `analysis/papers/`: inputs.csv (what its results are calculated from), results.csv (what it
prints for them), assumptions.csv (what is needed beside the inputs, each with its words), reasons.csv (why a result
does not follow). Results never feed `ours`: they are read last, and only to be compared.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.stats.printed_numbers import Printed, amount

FOLDER = Path(__file__).with_name("papers")

PAPERS = {"ppopp2019": "Hestness, Ardalani, Diamos: Beyond human-level accuracy, PPoPP 2019"}

TOLERANCE = 0.02

REPRODUCED = "reproduced"
ASSUMED = "reproduced with a stated assumption"
NOT = "not reproducible"
VERDICTS = (REPRODUCED, ASSUMED, NOT)

BETWEEN = "; "
"""What stands between two assumptions of a cell."""

Key = tuple[str, str, str]
"""table, row, column."""


@dataclass(frozen=True)
class Ours:
    """What follows. assumptions: keys of assumptions.csv; low, high: over what inputs may have been rounded from."""

    value: float
    assumptions: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class PaperCell:
    """One printed result. paper None: a figure without numbers; ours None: nothing follows. deviation_ratio: ours ÷
    paper - 1."""

    table: str
    row: str
    column: str
    paper: float | None
    ours: float | None
    deviation_ratio: float | None
    verdict: str
    assumption: str
    reason: str
    unit: str
    ours_low: float | None
    ours_high: float | None


class Inputs:
    """The inputs of a paper, by table, row and column."""

    def __init__(self, numbers: Mapping[Key, Printed]) -> None:
        self._numbers = numbers

    def printed(self, table: str, row: str, column: str) -> Printed:
        """The number as it is printed."""
        return self._numbers[table, row, column]

    def __call__(self, table: str, row: str, column: str) -> float:
        """The number."""
        return self.printed(table, row, column).value


def inputs(paper: str, folder: Path = FOLDER) -> Inputs:
    """What its results are calculated from."""
    return Inputs({_key(row): Printed(row["value"]) for row in _rows(folder / paper / "inputs.csv")})


def assumptions(paper: str, folder: Path = FOLDER) -> dict[str, float]:
    """Key → value."""
    return {row["key"]: float(row["value"]) for row in _rows(folder / paper / "assumptions.csv")}


def cells(paper: str, ours: Mapping[Key, Ours], folder: Path = FOLDER) -> list[PaperCell]:
    """Every printed result with what follows, in the order of the paper. Raises ValueError where something follows for
    which nothing is printed."""
    rows = _rows(folder / paper / "results.csv")
    if strange := set(ours) - {_key(row) for row in rows}:
        raise ValueError(f"expected results that are printed, got {sorted(strange)[0]}")
    words = {row["key"]: row["words"] for row in _rows(folder / paper / "assumptions.csv")}
    reasons = {_key(row): row["reason"] for row in _rows(folder / paper / "reasons.csv")}
    return [_cell(row, ours.get(_key(row)), words, _reason(_key(row), reasons)) for row in rows]


def count(cells: Iterable[PaperCell]) -> dict[str, int]:
    """Verdict → how many cells have it."""
    verdicts = [cell.verdict for cell in cells]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def _cell(row: Mapping[str, str], ours: Ours | None, words: Mapping[str, str], reason: str) -> PaperCell:
    printed = Printed(row["value"]) if row["value"] else None
    deviation = ours.value / printed.value - 1 if ours and printed else None
    verdict, rounding = _verdict(printed, ours, deviation, row["unit"])
    assumptions = [words[key] for key in ours.assumptions] if ours and verdict != NOT else []
    return PaperCell(
        table=row["table"],
        row=row["row"],
        column=row["column"],
        paper=printed.value if printed else None,
        ours=ours.value if ours else None,
        deviation_ratio=deviation,
        verdict=verdict,
        assumption=BETWEEN.join([*assumptions, *rounding]),
        reason=reason if verdict == NOT else "",
        unit=row["unit"],
        ours_low=ours.low if ours else None,
        ours_high=ours.high if ours else None,
    )


def _verdict(
    printed: Printed | None, ours: Ours | None, deviation: float | None, unit: str
) -> tuple[str, Sequence[str]]:
    """The verdict, and what it assumes of digits: both sides are known only to what they may have been rounded from."""
    if printed is None or ours is None or deviation is None:
        return NOT, ()
    if abs(deviation) <= TOLERANCE:
        return (ASSUMED if ours.assumptions else REPRODUCED), ()
    least, most = printed.ends
    if least * (1 - TOLERANCE) <= ours.value <= most * (1 + TOLERANCE):
        return ASSUMED, (
            f"the printed {amount(printed.value, unit)} is rounded, from {amount(least)} to {amount(most, unit)}",
        )
    if ours.low is not None and ours.high is not None and ours.low <= most and least <= ours.high:
        return ASSUMED, (f"the printed inputs are rounded, and {amount(ours.low)} to {amount(ours.high, unit)} follow",)
    return NOT, ()


def _reason(key: Key, reasons: Mapping[Key, str]) -> str:
    table, row, column = key
    patterns = (key, (table, "*", column), (table, row, "*"), (table, "*", "*"))
    return next((reasons[pattern] for pattern in patterns if pattern in reasons), "")


def _key(row: Mapping[str, str]) -> Key:
    return row["table"], row["row"], row["column"]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
