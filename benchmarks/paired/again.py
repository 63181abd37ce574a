"""How far apart are two runs of the same cells on the same machine?

    python -m benchmarks.paired.again RUN_A RUN_B

For each cell that both runs measured (model, batch size, precision, layout, repeat): the ratio of its paired
utilizations and of its step times, B ÷ A. Cells are also divided by where the host had put the processors in either run
(`core_round_trip_s` in step_times.csv, by the widest gap of all of them).

Not claimed: why two runs differ; that the interval of one cell covers it, since it is of one window. That of any window
(`analysis/utilization/windows.py`) has what repeats of its run differ by, but not what hours do.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.utilization import far_from_s
from benchmarks.paired.suite import CELL, cells

WITHIN = 0.05


def both(first: Path, second: Path) -> pd.DataFrame:
    """A row for each cell of both runs: `used` and `step`, ratios B ÷ A; `near_a`, `near_b`; `overlap` of the intervals
    of their own windows, `any_overlap` of those of any window."""
    found = (
        cells(first)
        .merge(cells(second), on=[*CELL, "repeat"], suffixes=("_a", "_b"))
        .dropna(subset=["used_a", "used_b", "step_s_a", "step_s_b"])
    )
    far_s = far_from_s(pd.concat([found["trip_s_a"], found["trip_s_b"]]).dropna())
    return found.assign(
        used=found["used_b"] / found["used_a"],
        step=found["step_s_b"] / found["step_s_a"],
        near_a=found["trip_s_a"] < far_s,
        near_b=found["trip_s_b"] < far_s,
        overlap=_overlap(found, "used"),
        any_overlap=_overlap(found, "any"),
    )


def _overlap(found: pd.DataFrame, name: str) -> pd.Series[bool]:
    low, high = f"{name}_low", f"{name}_high"
    return (found[f"{low}_a"] <= found[f"{high}_b"]) & (found[f"{low}_b"] <= found[f"{high}_a"])


def table(rows: pd.DataFrame) -> str:
    """Markdown: a line for all cells and one for each pair of placements; ratios as median and quantiles of |log|."""
    lines = [
        "| processors | cells | value | B ÷ A, median | half within | nine of ten within | farthest | within 5 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    near, after = rows["near_a"], rows["near_b"]
    groups = {
        "all": rows,
        "near in both": rows[near & after],
        "far in both": rows[~near & ~after],
        "near, then far": rows[near & ~after],
        "far, then near": rows[~near & after],
    }
    for name, group in groups.items():
        for value, words in (("used", "paired utilization"), ("step", "step time")):
            if len(group):
                apart = np.log(group[value]).abs()
                half, most, farthest = (f"{100 * np.expm1(apart.quantile(q)):.1f} %" for q in (0.5, 0.9, 1.0))
                within = int((apart <= np.log1p(WITHIN)).sum())
                cells_of = f"| {name} | {len(group)} | {words} | {group[value].median():.3f}"
                lines.append(f"{cells_of} | {half} | {most} | {farthest} | {within} |")
    return "\n".join(lines)


def repeats_held(run: pd.DataFrame) -> tuple[int, int, int]:
    """(repeats of the run's cells, those within the interval of their own window around the mean of their cell, those
    within that of any window). run: from `cells`.

    A window is nearer to the mean of n that it is one of than to the truth, by √((n - 1) ÷ n), which is made up for.
    """
    known = run.dropna(subset=["used"]).fillna({"layout": ""})
    logs = np.log(known["used"])
    of_cell = logs.groupby([known[name] for name in CELL])
    count = of_cell.transform("size")
    away = (logs - of_cell.transform("mean")).abs() * np.sqrt(count / (count - 1).clip(lower=1))
    halves = {name: np.log(known[f"{name}_high"] / known[f"{name}_low"]) / 2 for name in ("used", "any")}
    held = {name: int(((away <= half) & (count > 1)).sum()) for name, half in halves.items()}
    return int((count > 1).sum()), held["used"], held["any"]


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired.again", description=description)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN", help="directories of runs")
    options = parser.parse_args()
    for run in options.runs:
        if not (run / "utilization.csv").is_file():
            parser.error(f"expected the directory of a run, got {run}, which has no utilization.csv")
    rows = both(*options.runs)
    if rows.empty:
        parser.error("expected runs with cells in common, got two without one")
    print(table(rows))
    print(f"\nThe intervals of paired utilization overlap in {rows['overlap'].sum()} of {len(rows)} cells.")
    print(f"Those of any window overlap in {rows['any_overlap'].sum()}.")
    for run in options.runs:
        count, own, any_window = repeats_held(cells(run))
        if count:
            print(f"Of {count} repeats in {run.name} {own} hold the mean of their cell, {any_window} as any window.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
