"""Published steps that differ in one thing: layout, compiler, precision, device, PyTorch, batch.

Two rows are a pair where all else is the same: source, model, image size, mode, systems of as many devices, and what is
not left out on purpose (`but_for`). Several rows of one side count as their median. The ratio is of items a second, so
that a pair needs no peak.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pandas as pd

SAME = (
    "source", "counted_model", "image_size", "mode", "device", "devices", "precision", "layout", "framework",
    "compiled", "batch_size", "sequence_length", "power_limit_w",
)  # fmt: skip
"""Columns in which the rows of a pair agree."""


@dataclass(frozen=True)
class RateRatio:
    """Items a second of the second side ÷ the first's, over pairs: quartiles, and the share that is above 1.

    of: what both sides are (mode, device, …); models: how many different ones.
    """

    first: str
    second: str
    of: tuple[str, ...]
    pairs: int
    models: int
    low: float
    median: float
    high: float
    above_one_ratio: float


def pairs_of(table: pd.DataFrame, column: str, but_for: Collection[str] = ()) -> pd.DataFrame:
    """The counted rows by all columns of SAME but `column` and `but_for`: one column a value of `column`, as
    text, of items/s.

    table: of `summary.frame`. Settings without a value are empty strings, and agree with each other.
    """
    keys = [name for name in SAME if name != column and name not in but_for]
    counted = table[(table["status"] == "ok") & table["items_per_s"].notna() & table[column].notna()]
    counted = counted.assign(**{column: counted[column].map(_text)})
    found: pd.DataFrame = counted.groupby([*keys, column], dropna=False)["items_per_s"].median().unstack(column)
    return found


def _text(value: object) -> str:
    """A value as text; whole numbers without a point."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def paired_ratios(
    table: pd.DataFrame, column: str, sides: Sequence[tuple[str, str]], of: Sequence[str],
    but_for: Collection[str] = (), fewest: int = 1,
) -> list[RateRatio]:  # fmt: skip
    """For each two values of a column, and each group by the columns `of`: what one is to the other."""
    wide = pairs_of(table, column, but_for)
    found = []
    for first, second in sides:
        if first not in wide or second not in wide:
            continue
        both = wide[[first, second]].dropna()
        ratios = (both[second] / both[first]).rename("ratio").reset_index()
        for words, group in ratios.groupby(list(of)):
            if len(group) >= fewest:
                low, median, high = (float(each) for each in group["ratio"].quantile([0.25, 0.5, 0.75]))
                found.append(
                    RateRatio(
                        first,
                        second,
                        tuple(str(word) for word in words),
                        len(group),
                        group["counted_model"].nunique(),
                        low,
                        median,
                        high,
                        float((group["ratio"] > 1).mean()),
                    )
                )
    return found
