"""How many cells of a suite converge beside a neighbour on the same processors, and how far are they from an idle run?

    python -m benchmarks.paired.suite --run DIR --load 0.5 [--burst] --target-ci 0.05 --minutes 10 [--idle RUN]
    python -m benchmarks.paired.suite --run DIR --idle RUN --report

Measures the suite of `runners.sweep --suite post2021` as a run at DIR, while processes
of `benchmarks.paired.neighbours` spin: load 0.5 takes half of one processor, in slices of 10 ms. A later call goes on.
With an idle run of the same cells on the same machine, it compares their step times and paired utilizations.

Not claimed: that a spinning process stands for every neighbour; that both runs met the same machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

import pandas as pd

from benchmarks.paired.cells import alone_s, measure

CELL = ["model", "batch_size", "precision", "layout"]


USED = {
    "utilization_ratio": "used", "utilization_low_ratio": "used_low", "utilization_high_ratio": "used_high",
    "windows_low_ratio": "any_low", "windows_high_ratio": "any_high",
}  # fmt: skip
"""Column of utilization.csv → its name here."""


def cells(run: Path) -> pd.DataFrame:
    """The last attempt of each cell: status, duration_s, step_s, its round trip as trip_s; its paired utilization as
    `used` between used_low and used_high, in any window between any_low and any_high; `alone_s`."""
    rows = pd.read_csv(run / "runs.csv").sort_values("attempt").groupby("cell_id").last()
    steps = pd.read_csv(run / "step_times.csv").query("phase.isna()").groupby("cell_id").last()
    steps = steps.reindex(columns=["mean_s", "core_round_trip_s"])  # a run before schema version 5 has no round trips
    paired = pd.read_csv(run / "utilization.csv").query("denominator == 'paired_ceiling' and method == 'exact'")
    used = paired.groupby("cell_id").last().reindex(columns=[*USED])  # without repeats no window but its own is known
    columns = [
        steps.set_axis(["step_s", "trip_s"], axis=1),
        used.rename(columns=USED),
        alone_s(run),
    ]
    return rows[[*CELL, "repeat", "status", "duration_s"]].join(columns)


def summary(beside: pd.DataFrame, idle: pd.DataFrame | None) -> list[str]:
    """Lines in Markdown. idle: cells of a run without the neighbour, of which the first repeat is compared."""
    converged = (beside["status"] == "ok").sum()
    lines = [
        f"{len(beside)} cells in {beside['duration_s'].sum() / 60:.1f} minutes: {converged} converged, the longest "
        f"took {beside['duration_s'].max():.0f} s."
    ]
    if idle is None:
        return lines
    both = beside.merge(idle[idle["repeat"] == 0], on=CELL, suffixes=("", "_idle")).dropna(subset=["used", "used_idle"])
    if both.empty:
        return [*lines, "No cell of the idle run is the same."]
    slower = both["step_s"] / both["step_s_idle"]
    ratio = both["used"] / both["used_idle"]
    worst = both.loc[(ratio - 1).abs().idxmax()]
    within = ((ratio - 1).abs() <= 0.05).sum()
    lower, higher = both["least_s"] / both["step_s_idle"], both["most_s"] / both["step_s_idle"]
    between = ((lower <= 1) & (higher >= 1)).sum()
    lines += [
        f"Beside the neighbour a step took {slower.min():.2f} to {slower.max():.2f} times as long (median "
        f"{median(slower):.2f}), {len(both)} cells.",
        f"Paired utilization ÷ idle: median {median(ratio):.3f}, {ratio.min():.3f} to {ratio.max():.3f}; {within} of "
        f"{len(both)} within 5 %; farthest {worst['model']} {worst['batch_size']} {worst['precision']}.",
        f"The idle step is between the step and the step without its waits in {between} of {len(both)} cells; without "
        f"its waits a step took {lower.min():.2f} to {lower.max():.2f} of the idle one (median {median(lower):.2f}).",
    ]
    return lines


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired.suite", description=description)
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="the run beside the neighbour")
    parser.add_argument("--load", type=float, default=0.5, help="processors that the neighbour keeps busy (0.5)")
    parser.add_argument("--burst", action="store_true", help="one second of every two")
    parser.add_argument("--target-ci", default="0.05", metavar="RATIO", help="as of runners.sweep (0.05)")
    parser.add_argument("--batch-sizes", default="1,4,8", metavar="N,N", help="as of runners.sweep (1,4,8)")
    parser.add_argument("--minutes", type=float, default=30.0, help="no cell is started that would not end within them")
    parser.add_argument("--idle", type=Path, metavar="RUN", help="a run without the neighbour, to compare with")
    parser.add_argument("--retry", default="", help="as of runners.sweep")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if options.idle and not (options.idle / "runs.csv").is_file():
        parser.error(f"--idle: expected a run's directory, got {options.idle}, which has no runs.csv")
    if not options.report:
        words = ["--suite", "post2021", "--batch-sizes", options.batch_sizes]
        words += ["--target-ci", options.target_ci, "--time-budget", str(60 * options.minutes)]
        words += ["--retry", options.retry] if options.retry else []
        measure(options.load, options.burst, options.run, words)
    print("\n".join(summary(cells(options.run), options.idle and cells(options.idle))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
