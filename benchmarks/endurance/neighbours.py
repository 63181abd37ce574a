"""What a neighbour on the same processors does to a cell's step time and to its utilization.

    python -m benchmarks.endurance.neighbours --out DIR [--model resnet18] [--batch-size 4]

Plants processes that keep one or two processors busy: for a share of each 20 ms (steady), or for 2 s of each 4 s
(bursts). Beside each, the same cell is measured by `runners.sweep --paired-ceiling`, as a run under DIR; a run that is
there is not measured again, so that the benchmark resumes. Prints a table: step time and utilization over the session's
ceiling and over the paired one, each ÷ the same number of the first idle run, and the marks of the row.

The machine must be idle otherwise: the idle run is measured twice, and the second one shows what the rest is worth.
Not claimed: neighbours that share caches or memory alone; other machines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

BUSY = """
import sys, time
share, period_s = float(sys.argv[1]), float(sys.argv[2])
while True:
    begun_s = time.perf_counter()
    while time.perf_counter() - begun_s < share * period_s:
        pass
    time.sleep(max(0.0, (1 - share) * period_s))
"""

STEADY_S, BURSTS_S = 0.02, 4.0


@dataclass(frozen=True)
class Neighbour:
    """Processes, each busy for a share of each period."""

    name: str
    shares: tuple[float, ...] = ()
    period_s: float = STEADY_S


NEIGHBOURS = (
    Neighbour("idle"),
    Neighbour("50 % of one processor, steady", (0.5,)),
    Neighbour("one processor for 2 of 4 s", (0.5,), BURSTS_S),
    Neighbour("one processor", (1.0,)),
    Neighbour("two processors for 2 of 4 s", (0.5, 0.5), BURSTS_S),
    Neighbour("two processors", (1.0, 1.0)),
    Neighbour("idle again"),
)


@contextlib.contextmanager
def planted(neighbour: Neighbour) -> Iterator[None]:
    """The neighbour's processes run inside."""
    command = [sys.executable, "-c", BUSY]
    processes = [subprocess.Popen([*command, str(share), str(neighbour.period_s)]) for share in neighbour.shares]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(neighbour: Neighbour, run: Path, model: str, batch_size: int) -> None:
    """One cell beside a neighbour, as a run of its own."""
    go_on = ["--resume", str(run)] if (run / "manifest.json").exists() else ["--out", str(run)]
    cell = ["--models", model, "--batch-sizes", str(batch_size), "--methods", "exact", "--paired-ceiling"]
    with planted(neighbour):
        subprocess.run(
            [sys.executable, "-m", "runners.sweep", *cell, "--device", "cpu", *go_on],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def summary(run: Path) -> dict[str, Any]:
    """Step time, utilizations and marks of a run's one cell."""
    rows = pd.read_csv(run / "utilization.csv").query("method == 'exact'").set_index("denominator")
    whole = pd.read_csv(run / "step_times.csv").query("phase.isna()").iloc[0]
    runs = pd.read_csv(run / "runs.csv").iloc[0]
    found: dict[str, Any] = {"step_s": whole["mean_s"], "status": runs["status"]}
    for name in ("ceiling", "paired_ceiling"):
        row = rows.loc[name]
        found[name] = row["utilization_ratio"]
        found[f"{name}_low"], found[f"{name}_high"] = row["utilization_low_ratio"], row["utilization_high_ratio"]
    marks = {mark.partition(":")[0] for mark in json.loads(runs["warnings"])}
    found["marks"] = ", ".join(sorted(marks - {"paired_ceiling"}))
    return found


def table(answers: dict[str, dict[str, Any]]) -> str:
    """Markdown; ratios are to the first idle run."""
    idle = answers[NEIGHBOURS[0].name]
    lines = [
        "| neighbour | step time | ÷ idle | over the session's ceiling | ÷ idle "
        "| over the paired ceiling (95 %) | ÷ idle | status | marks |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in answers.items():
        cells = [name, f"{each['step_s'] * 1e3:.4g} ms", f"{each['step_s'] / idle['step_s']:.3g}"]
        cells += [f"{100 * each['ceiling']:.3g} %", f"{each['ceiling'] / idle['ceiling']:.3g}"]
        interval = f"{100 * each['paired_ceiling_low']:.3g} to {100 * each['paired_ceiling_high']:.3g}"
        cells += [f"{100 * each['paired_ceiling']:.3g} % ({interval})"]
        cells += [f"{each['paired_ceiling'] / idle['paired_ceiling']:.3g}", str(each["status"]), str(each["marks"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance.neighbours", description=description)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the runs; those there are kept")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=4)
    options = parser.parse_args()
    answers = {}
    for neighbour in NEIGHBOURS:
        run = options.out / neighbour.name.replace(" ", "-").replace("%", "percent").replace(",", "")
        if not (run / "headline.csv").exists():
            measure(neighbour, run, options.model, options.batch_size)
        answers[neighbour.name] = summary(run)
    print(table(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
