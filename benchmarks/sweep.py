"""What a sweep costs beside measuring: its wall time ÷ the time inside measured windows, and where the rest goes.

    python -m benchmarks.sweep [--out DIR] [-- MORE ARGUMENTS OF runners.sweep]
    python -m benchmarks.sweep --run DIR

The first sweeps ten cells on the CPU (MODELS × BATCHES, everything else as by default) and keeps the run; the second
measures nothing and tells of a run that is there, as far as its files say. Goal: at most 1.5.

Inside is every row of samples.csv: blocks of the warm-up, measured blocks (of the cell's step, of one sample, of the
epoch's last batch, of an epoch that was run whole), the phases' blocks, and steps that were timed under the profiler.
Outside is all else: starting, counting, tracing, finding ceilings, building models, what lies between blocks (garbage
collection, sizing blocks, the untimed profiled step and reading what it recorded), commits, the report.

A sweep run here is timed from inside this process, without the interpreter's own start (0.1 s). Of a run that is there,
wall time is from each session's row to the end of its last cell, to the second: without the probe before and the report
after. Counting is then what counters say of themselves, without their processes' start, and ceilings are the timed
kernels alone; both are less than what was spent, and the difference is in "other work on cells".
Not claimed: anything about another machine, or one that was busy.
"""

import argparse
import datetime
import itertools
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from results.records.cell import Cell, Run, Sitting
from results.records.counts import FlopCount
from results.records.samples import Sample
from results.store.store import RunData, read_run

GOAL_RATIO = 1.5

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "alexnet")
BATCHES = (1, 8)

Mark = tuple[float, str]
"""When something began, and what: a stage of a cell, or `DONE`."""

START, DONE, REPORT = "start, probe and checks", "between cells", "report"
MEASURING, BETWEEN_BLOCKS = "measuring", "measuring: outside of blocks"


@dataclass(frozen=True)
class Account:
    """Where a sweep's wall time went, in seconds. inside: by part of samples.csv; outside: by what was done."""

    wall_s: float
    cells: int
    inside: Mapping[str, float]
    outside: Mapping[str, float]

    @property
    def inside_s(self) -> float:
        return sum(self.inside.values())

    @property
    def ratio(self) -> float:
        """Wall time ÷ time inside. Raises ValueError where nothing was measured."""
        if not self.inside_s:
            raise ValueError("expected a run with timed blocks, got one without any")
        return self.wall_s / self.inside_s


def inside(samples: Iterable[Sample]) -> dict[str, float]:
    """Part of samples.csv → seconds. A phase on a GPU counts by its device time, the host only issues it."""
    parts: dict[str, float] = {}
    for sample in samples:
        parts[sample.part] = parts.get(sample.part, 0.0) + max(sample.wall_s, sample.device_s or 0.0)
    return parts


def stages(marks: Sequence[Mark], begun_s: float, ended_s: float) -> dict[str, float]:
    """What was done → seconds: each mark's stage lasts until the next; before the first it is START, and the last,
    which is the end of a cell, begins the report."""
    points = [(begun_s, START), *marks, (ended_s, "")]
    found: dict[str, float] = {}
    for place, ((from_s, what), (to_s, _)) in enumerate(itertools.pairwise(points)):
        what = REPORT if what == DONE and place == len(marks) else (MEASURING if what.startswith(MEASURING) else what)
        found[what] = found.get(what, 0.0) + to_s - from_s
    return found


def observed(marks: Sequence[Mark], begun_s: float, ended_s: float, data: RunData) -> Account:
    """The account of a sweep whose stages were seen as they began."""
    within = inside(data.records(Sample))
    outside = stages(marks, begun_s, ended_s)
    outside[BETWEEN_BLOCKS] = outside.pop(MEASURING, 0.0) - sum(within.values())
    return Account(ended_s - begun_s, len(data.runs), within, outside)


def recorded(data: RunData) -> Account:
    """The account of a run by its files alone; every attempt at a cell has its time, those that failed too."""
    within = inside(data.records(Sample))
    wall_s = sum(sitting_s(sitting, data.all_runs) for sitting in data.sittings)
    spans_s = [run.window_end_s - run.window_start_s for run in data.runs if run.window_start_s and run.window_end_s]
    measured_s = within.get("measure", 0.0)
    outside = {
        "counting, by the counters themselves": counting_s(data),
        "ceilings, the timed kernels": sum((c.repeats or 0) * (c.median_s or 0.0) for c in data.ceilings),
        "between the first and last measured block": max(0.0, sum(spans_s) - own_s(data)) if measured_s else 0.0,
        DONE: wall_s - sum(run.duration_s or 0.0 for run in data.all_runs),
    }
    rest_s = wall_s - sum(within.values()) - sum(outside.values())
    return Account(wall_s, len(data.runs), within, {**outside, "other work on cells": rest_s})


def own_s(data: RunData) -> float:
    """Measured blocks of the cells' own steps, which the window spans."""
    rows = data.records(Sample)
    return sum(row.wall_s for row in rows if row.part == "measure" and not row.work)


def sitting_s(sitting: Sitting, runs: Iterable[Run]) -> float:
    """From a session's row to the end of its last cell; 0 for one without cells."""
    ends = [_seconds(r.started_at) + (r.duration_s or 0.0) for r in runs if r.sitting == sitting.sitting]
    return max(ends) - _seconds(sitting.started_at) if ends else 0.0


def counting_s(data: RunData) -> float:
    """What counters say they took. Cells of one workload share their counts: the same time is taken once."""
    rows = data.records(FlopCount)
    counted = {(row.counter, row.workload, row.batch_size, row.duration_s) for row in rows if row.duration_s}
    return sum(duration_s for _, _, _, duration_s in counted if duration_s)


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()


def lines(account: Account) -> list[str]:
    """The ratio with what it says about the goal, then every part of the wall time."""
    said = "met" if account.ratio <= GOAL_RATIO else "missed"
    found = [
        f"wall time / time inside measured windows: {account.ratio:.2f}; goal at most {GOAL_RATIO}: {said}",
        f"wall time {account.wall_s:.1f} s, {account.cells} cells, inside {account.inside_s:.1f} s",
    ]
    for title, parts in (("inside", account.inside), ("outside", account.outside)):
        ranked = sorted(parts.items(), key=lambda item: -item[1])
        found += [f"  {title:8} {what:44} {s:8.1f} s  {100 * s / account.wall_s:5.1f} %" for what, s in ranked]
    return found


def machine(data: RunData) -> str:
    """Where it was measured, from the run's own sessions."""
    said = []
    for sitting in data.sittings:
        facts = sitting.environment
        told = ("logical_cores", "torch_threads", "load_1min")
        load = ", ".join(f"{name} {facts[name]}" for name in told if name in facts)
        said.append(f"{sitting.device_name}, torch {sitting.torch_version}, Python {facts.get('python', '?')}, {load}")
    return "; ".join(dict.fromkeys(said))


def sweep(arguments: Sequence[str], clock: Callable[[], float]) -> tuple[list[Mark], float, float]:
    """Runs a sweep in this process: its marks, when it began, when it ended. Raises ValueError if it failed."""
    from runners.cli import exits, progress
    from runners.sweep import command

    marks: list[Mark] = []

    class Watched(progress.Progress):
        """Progress that remembers when each stage began."""

        def stage(self, cell: Cell, doing: str) -> None:
            marks.append((clock(), doing))
            super().stage(cell, doing)

        def done(self, run: Run) -> None:
            super().done(run)
            marks.append((clock(), DONE))

    plain, progress.Progress = progress.Progress, Watched  # type: ignore[misc]
    begun_s = clock()
    try:
        code = command.main(arguments)
    finally:
        progress.Progress = plain  # type: ignore[misc]
    if code not in (0, exits.FAILED):
        raise ValueError(f"expected a sweep that ends with 0 or {exits.FAILED}, got {code}")
    return marks, begun_s, clock()


def _told(path: Path) -> tuple[RunData, Account]:
    data = read_run(path)
    return data, recorded(data)


def _measured(options: argparse.Namespace) -> tuple[RunData, Account]:
    out = options.out or Path(tempfile.mkdtemp(prefix="sweep-")) / "run"
    grid = ["--device", "cpu", "--models", ",".join(MODELS), "--batch-sizes", ",".join(map(str, BATCHES))]
    seen = sweep([*grid, "--out", str(out), *options.more], time.monotonic)
    print(f"run: {out}")
    data = read_run(out)
    return data, observed(*seen, data)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run that is there: measure nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to keep the run (default: a new directory)")
    parser.add_argument("more", nargs="*", help="more arguments of runners.sweep, after --")
    options = parser.parse_args(arguments)
    if options.run is not None and (options.out is not None or options.more):
        parser.error("expected --run alone: it measures nothing")
    try:
        data, account = _told(options.run) if options.run is not None else _measured(options)
        said = lines(account)
    except ValueError as fault:
        parser.error(str(fault))
    print("\n".join(said))
    print(f"command: {shlex.join(['python', '-m', 'benchmarks.sweep', *arguments])}")
    print(f"sweep: {'; '.join(data.manifest.commands)}")
    print(f"machine: {machine(data)}")
    return 0 if account.ratio <= GOAL_RATIO else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
