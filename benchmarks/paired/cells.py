"""What a neighbour on the same processors does to a cell of a sweep: its step time and its utilization.

    python -m benchmarks.paired.cells --out DIR [--model resnet18] [--batch-size 4]
    python -m benchmarks.paired.cells --out DIR --sweeps 10

Beside each of the planted neighbours of `benchmarks.paired.neighbours` the same cell is measured by
`runners.sweep`, as a run under DIR; a run that is there is not measured again, so that the benchmark
resumes. Prints a table: step time and utilization over the session's ceiling and over the paired one, each ÷ the same
number of the first idle run, and the marks of the row.

With --sweeps, so many sweeps without options (the README's first line) beside a process that is busy for 30 % of each
100 ms, as many at 50 %, and then on the idle machine one with the same number of threads for each that was taken.

The machine must be idle otherwise: the idle run is measured twice, and the second one shows what the rest is worth.
Not claimed: neighbours that share caches or memory alone; other machines; coverage of the intervals.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.paired.neighbours import CONDITIONS, name_of, neighbours

TAKEN = (0.3, 0.5)
"""Of each 100 ms: how long the process beside --sweeps is busy."""

AGAIN = "none, again"
"""The idle cell that is measured last."""


def measure(load: float, burst: bool, run: Path, cell: Sequence[str]) -> None:
    """Cells beside a neighbour, as a run of their own. cell: options of the sweep that name them."""
    go_on = ["--resume", str(run)] if (run / "manifest.json").exists() else ["--out", str(run)]
    words = [*cell, "--methods", "exact", "--device", "cpu", *go_on]
    with neighbours(load, burst):
        subprocess.run([sys.executable, "-m", "runners.sweep", *words], check=True, stdout=subprocess.DEVNULL)


def alone_s(run: Path) -> pd.DataFrame:
    """By cell_id: the step of the blocks that are used without and with their waits, as least_s and most_s. Between
    them is the step without neighbours, if these did nothing but take processors."""
    blocks = pd.read_csv(run / "samples.csv").query("part == 'measure' and work.isna()")
    sums = blocks.groupby(["cell_id", "attempt"])[["wall_s", "run_wait_s", "steps"]].sum().groupby("cell_id").last()
    least_s = (sums["wall_s"] - sums["run_wait_s"]).clip(lower=0.0) / sums["steps"]
    return pd.DataFrame({"least_s": least_s, "most_s": sums["wall_s"] / sums["steps"]})


def summary(run: Path) -> dict[str, Any]:
    """Step time, utilizations and marks of a run's one cell."""
    rows = pd.read_csv(run / "utilization.csv").query("method == 'exact'").set_index("denominator")
    whole = pd.read_csv(run / "step_times.csv").query("phase.isna()").iloc[0]
    runs = pd.read_csv(run / "runs.csv").iloc[0]
    found: dict[str, Any] = {"step_s": whole["mean_s"], "status": runs["status"]}
    found["least_s"] = alone_s(run)["least_s"].iloc[-1]
    for name in ("ceiling", "paired_ceiling"):
        row = rows.loc[name]
        found[name] = row["utilization_ratio"]
        found[f"{name}_low"], found[f"{name}_high"] = row["utilization_low_ratio"], row["utilization_high_ratio"]
    marks = {mark.partition(":")[0] for mark in json.loads(runs["warnings"])}
    found["marks"] = ", ".join(sorted(marks - {"paired_ceiling"}))
    return found


def table(answers: dict[str, dict[str, Any]]) -> str:
    """Markdown; ratios are to the first idle run."""
    idle = next(iter(answers.values()))
    lines = [
        "| neighbour | step time | ÷ idle | without its waits | over the session's ceiling | ÷ idle "
        "| over the paired ceiling (95 %) | ÷ idle | status | marks |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in answers.items():
        cells = [name, f"{each['step_s'] * 1e3:.4g} ms", f"{each['step_s'] / idle['step_s']:.3g}"]
        cells += [f"{each['least_s'] * 1e3:.4g} ms"]
        cells += [f"{100 * each['ceiling']:.3g} %", f"{each['ceiling'] / idle['ceiling']:.3g}"]
        interval = f"{100 * each['paired_ceiling_low']:.3g} to {100 * each['paired_ceiling_high']:.3g}"
        cells += [f"{100 * each['paired_ceiling']:.3g} % ({interval})"]
        cells += [f"{each['paired_ceiling'] / idle['paired_ceiling']:.3g}", str(each["status"]), str(each["marks"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sweep(run: Path, share: float, environ: Mapping[str, str]) -> float:
    """One sweep without options beside a process that is busy for a share of each 100 ms; how long it took, s. One
    that is there is not measured again."""
    if not (run / "seconds").exists():
        begun_s = time.monotonic()
        with neighbours(share, False, 0.1):
            command = [sys.executable, "-m", "runners.sweep", "--device", "cpu", "--out", str(run)]
            subprocess.run(command, env=os.environ | environ, check=True, stdout=subprocess.DEVNULL)
        (run / "seconds").write_text(str(time.monotonic() - begun_s))
    return float((run / "seconds").read_text())


def used(run: Path) -> pd.DataFrame:
    """By model: threads, wait policy, paired utilization, and half of its 95 % interval ÷ it."""
    rows = pd.read_csv(run / "utilization.csv", keep_default_na=False).set_index("model")
    rows = rows[(rows.method == "exact") & (rows.denominator == "paired_ceiling")]
    low, high, ratio = (pd.to_numeric(rows[f"utilization_{end}ratio"]) for end in ("low_", "high_", ""))
    return rows[["threads", "wait_policy"]].assign(ratio=ratio, width=(high - low) / (2 * ratio))


def sweeps(out: Path, count: int) -> Iterator[str]:
    """A row in Markdown for each share and model."""
    yield "| busy | model | threads | within ±5 % | median ± | ÷ idle (median; least, most) | seconds, the most |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for share in TAKEN:
        runs = [out / f"busy-{100 * share:.0f}-{n}" for n in range(count)]
        most_s = max(sweep(run, share, {}) for run in runs)
        for model, rows in pd.concat(map(used, runs)).groupby(level=0):
            of_idle = []
            for threads, policy, ratio in rows[["threads", "wait_policy", "ratio"]].itertuples(index=False):
                idle, number = out / f"idle-{threads}{policy}", {"OMP_NUM_THREADS": str(threads or os.cpu_count())}
                sweep(idle, 0.0, number | ({"OMP_WAIT_POLICY": policy} if policy else {}))
                of_idle.append(ratio / used(idle).loc[model, "ratio"])
            chosen = ", ".join(
                sorted({f"{t or 'own'} {p}".strip() for t, p in zip(rows.threads, rows.wait_policy, strict=True)})
            )
            narrow = f"{(rows.width <= 0.05).sum()} of {len(rows)} | {rows.width.median():.1%}"
            span = f"{statistics.median(of_idle):.2f}; {min(of_idle):.2f}, {max(of_idle):.2f}"
            yield f"| {share:.0%} | {model} | {chosen} | {narrow} | {span} | {most_s:.0f} |"


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired.cells", description=description)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the runs; those there are kept")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--sweeps", type=int, metavar="N", help="so many sweeps beside each busy process instead")
    options = parser.parse_args()
    if options.sweeps:
        print(*sweeps(options.out, options.sweeps), sep="\n")
        return 0
    cell = ["--models", options.model, "--batch-sizes", str(options.batch_size)]
    answers = {}
    conditions = {name_of(load, burst): (load, burst) for load, burst in CONDITIONS} | {AGAIN: (0.0, False)}
    for name, (load, burst) in conditions.items():
        run = options.out / name.replace(" ", "-").replace("%", "").replace(",", "")
        if not (run / "headline.csv").exists():
            measure(load, burst, run, cell)
        answers[name] = summary(run)
    print(table(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
