"""Tables over published steps: how many there are, what they use of the peak, how near they come to the bound.

Several rows of one model, batch and device (versions of PyTorch, layouts) each count. Medians are over rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.atlas.published_step import PublishedStep

COUNTED = "utilization_ratio"
BOUNDED = "achieved_over_bound_ratio"

CPU, GPU = "CPU", "GPU"

QUARTILES = {"low": 0.25, "median": 0.5, "high": 0.75}


def frame(rows: Sequence[PublishedStep]) -> pd.DataFrame:
    """The rows as a table, one column a field, and `processor` ("CPU" or "GPU"); unknown numbers are NaN."""
    table = pd.DataFrame([dataclasses.asdict(row) for row in rows], columns=_FIELDS)
    numbers = [
        name for name in _FIELDS if name.endswith(("_ratio", "_s", "_size", "_w", "_j", "_length")) or name in _COUNTS
    ]
    table[numbers] = table[numbers].apply(pd.to_numeric)
    return table.assign(processor=table["device"].str.contains("Intel(R)", regex=False).map({True: CPU, False: GPU}))


_FIELDS = [field.name for field in dataclasses.fields(PublishedStep)]
_COUNTS = ("parameters", "model_flop", "peak_flop_per_s", "published_mac", "published_parameters")


def by_status(table: pd.DataFrame) -> pd.DataFrame:
    """Rows by source, processor, mode and status."""
    return table.groupby(["source", "processor", "mode", "status"], sort=True).size().rename("rows").reset_index()


def by(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Of rows with a utilization, by these columns: rows, models, quartiles of utilization, and the bound's share.

    Columns: rows, models, low, median, high (quartiles of utilization), best, bound_median and bound_best
    (bound ÷ time; NaN where no row has a bound).
    """
    known = table[table[COUNTED].notna()]
    found: pd.DataFrame = known.groupby(list(columns), sort=True).agg(
        **_spread(COUNTED),
        bound_median=(BOUNDED, "median"),
        bound_best=(BOUNDED, "max"),
    )
    return found.reset_index()


def rates(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """FLOP/s of rows with a count and a time, by these columns: rows, models, low, median, high (quartiles), best."""
    known = table.assign(rate=table["model_flop"] / table["step_time_s"]).dropna(subset=["rate"])
    found: pd.DataFrame = known.groupby(list(columns), sort=True).agg(**_spread("rate"))
    return found.reset_index()


def _spread(column: str) -> dict[str, Any]:
    """How many rows and models a group has, and the quartiles and the largest of a column."""
    quartiles = {name: (column, lambda each, at=at: each.quantile(at)) for name, at in QUARTILES.items()}
    return {"rows": (column, "size"), "models": ("counted_model", "nunique"), **quartiles, "best": (column, "max")}


def extremes(table: pd.DataFrame, count: int, column: str = COUNTED) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows with the largest and the smallest of a column, of each model its best row."""
    known = table[table[column].notna()].sort_values(column, ascending=False, kind="stable")
    best = known.drop_duplicates(["counted_model", "mode", "device"])
    return best.head(count), best.tail(count).iloc[::-1]


def energy(table: pd.DataFrame) -> pd.DataFrame:
    """By model and device, of rows with joules an item and a power limit: the row with the least at the highest limit,
    and the row with the least at any. Columns: model, device, rows, and power_limit_w, energy_per_item_j, items_per_s
    and batch_size of both, those of the second with `least_` before."""
    known = table[table["energy_per_item_j"].notna() & table["power_limit_w"].notna()]
    found = []
    for (model, device), group in known.groupby(["model", "device"], sort=True):
        least = group.sort_values("energy_per_item_j", kind="stable")
        highest = least[least["power_limit_w"] == least["power_limit_w"].max()].iloc[0]
        row = {"model": model, "device": device, "rows": len(group)}
        row |= {name: highest[name] for name in _ENERGY}
        found.append(row | {f"least_{name}": least.iloc[0][name] for name in _ENERGY})
    return pd.DataFrame(found)


_ENERGY = ("power_limit_w", "energy_per_item_j", "items_per_s", "batch_size")


def beyond_bound(table: pd.DataFrame) -> pd.DataFrame:
    """Rows that were faster than their bound, the farthest first."""
    found = table[table[BOUNDED] > 1]
    return found.sort_values(BOUNDED, ascending=False, kind="stable")
