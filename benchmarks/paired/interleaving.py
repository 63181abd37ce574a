"""How long does a cell take until its utilization is within 3 %, by how the ceiling's kernels are timed?

    python -m benchmarks.paired.interleaving --runs DIR [--series 20]
    python -m benchmarks.paired.interleaving --file interleaving.jsonl --minutes 20 [--malloc retain] [--load 1 --burst]
    python -m benchmarks.paired.interleaving --file interleaving.jsonl --report

The ways: the step *alone*, as on a GPU, where the interval has nothing of the ceiling in it; *apart*,
the step until its own interval is within 3 % ÷ √2 and then the kernel likewise, so that their quotient is within 3 %;
beside each block of the step a kernel's block of *40 ms*, or of a share of the step's block. A sweep uses a fifth.

With `--runs`, cells are simulated: steps and calls that are independent and scatter as those of each converged cell of
this run did (differences of neighbouring blocks), by the rules of `measure/timing` on a clock that each moves on. With
`--file`, a step of ResNet-18 is timed on this machine, the ways in turn; each line of the file is a cell. `--load` and
`--burst` plant a neighbour, as in `benchmarks.paired.neighbours`; the ways are compared beside the same one.

Not claimed of a simulated cell: drift and neighbours, of which there are none. Apart, step and kernel meet the machine
at different times: what changed between them has no part in the interval.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from analysis.utilization.paired_ceiling import paired_ceiling
from analysis.utilization.step_times import ASIDE
from benchmarks.paired.neighbours import (
    Cell,
    cells_parser,
    name_of,
    neighbours,
    origin,
    read,
    reports,
    training_step,
)
from measure.timing.blocks import measure_blocks
from measure.timing.ceiling_blocks import CeilingBlocks, CeilingKernel
from measure.timing.protocols import Protocol
from results.records.samples import Sample
from results.store.layout import key_of
from results.store.reading import read_run
from runners.sweep.cell import set_malloc

ALONE, APART, FIXED = "alone", "apart", "40 ms"
SHARES = {"a tenth": 0.1, "a fifth": 0.2, "a half": 0.5, "as long": 1.0}
WAYS = (ALONE, APART, FIXED, *SHARES)
LIVE = (APART, "a fifth", "a half")
"""Ways that are timed on a machine, in turn. Files of before 2026-11-28 have others, which are reported, too."""
BLOCK_S = 0.2
"""Of a step's block, at least (`Protocol.block_s`)."""
LEAST_PAIRS = 3
"""Blocks next to each other, from which a cell's scatter is taken."""


def scatter_of_a_second(blocks: Sequence[Sample], first: int) -> float | None:
    """Standard deviation of the mean of one second of steps ÷ that mean, by pairs of blocks next to each other.

    first: which block begins the first pair; a pair with a block that was set aside is left out. A block of n seconds
    scatters by 1 ÷ √n of that, if its steps are independent. Drift from pair to pair is not in it. None of few pairs.
    """
    pairs = zip(blocks[first::2], blocks[first + 1 :: 2], strict=False)
    squares = [
        math.log((a.wall_s / a.steps) / (b.wall_s / b.steps)) ** 2 / (1 / a.wall_s + 1 / b.wall_s)
        for a, b in pairs
        if a.part not in ASIDE and b.part not in ASIDE
    ]
    return math.sqrt(fmean(squares)) if len(squares) >= LEAST_PAIRS else None


def one_cell(way: str, step: Callable[[], Any], step_s: float, kernel: CeilingKernel, clock: Any) -> Cell:
    """used: time of a kernel's call ÷ step time (utilization but for a constant), with its 95 % interval."""
    protocol, begun_s = Protocol.for_device("cpu"), clock.wall_s()
    if way in (ALONE, APART):
        narrower = Protocol.for_device("cpu", target_ci_ratio=protocol.target_ci_ratio / math.sqrt(2))
        works, each = ([step], protocol) if way == ALONE else ([step, kernel.call], narrower)
        timings = [measure_blocks(work, clock, each) for work in works]
        used = timings[-1].summary.mean / timings[0].summary.mean
        factor = math.exp(min(math.hypot(*(each.summary.half_width_ratio or math.inf for each in timings)), 700.0))
        low, high, blocks = used / factor, used * factor, len(timings[0].blocks)
        status = "ok" if all(timing.status == "ok" for timing in timings) else "not_converged"
    else:
        share = 0.04 / max(BLOCK_S, step_s) if way == FIXED else SHARES[way]
        with CeilingBlocks([kernel], clock, protocol, share) as beside:
            timing = measure_blocks(step, clock, protocol, step_s, beside)
        found = paired_ceiling((*timing.blocks, *timing.aside, *beside.samples), protocol.interval_rule)
        if found is None:
            raise ValueError("expected kernels beside the measured blocks")
        paired = found.utilization({kernel.unit: kernel.flop})
        used, low, high = paired.ratio, paired.low or 0.0, paired.high or math.inf
        status, blocks = timing.status, len(timing.blocks)
    took_s = clock.wall_s() - begun_s
    return {"way": way, "took_s": took_s, "used": used, "low": low, "high": high, "status": status, "blocks": blocks}


@dataclass
class SimulatedClock:
    """A device of its own time, so that what the real machine does to this process is in no number. now_s: its time."""

    now_s: float = 0.0

    def wall_s(self) -> float:
        return self.now_s

    def event(self) -> float:
        return self.now_s

    def between_s(self, start: float, end: float) -> float:
        return end - start

    def synchronize(self) -> None:
        pass


@dataclass(frozen=True)
class Scatter:
    """Of a cell that was measured: mean and relative standard deviation of one step's time, and of one call's."""

    step_s: float
    step: float
    call_s: float
    call: float


def scatters_of(run: Path) -> Iterator[Scatter]:
    """Of each converged cell of a run with enough pairs of blocks."""
    found = read_run(run)
    converged = {key_of(row) for row in found.runs if row.status == "ok"}
    cells: dict[Any, tuple[list[Sample], list[Sample]]] = {}
    for row in sorted(found.records(Sample), key=lambda row: row.start_s):
        if key_of(row) in converged and row.part in ("measure", *ASIDE, "ceiling") and not row.phase and not row.work:
            cells.setdefault(key_of(row), ([], []))[row.part == "ceiling"].append(row)
    for steps, calls in cells.values():
        step, call = scatter_of_a_second(steps, 0), scatter_of_a_second(calls, 1)
        if step is not None and call is not None:
            step_s, call_s = (fmean(each.wall_s / each.steps for each in blocks) for blocks in (steps, calls))
            yield Scatter(step_s, step / math.sqrt(step_s), call_s, call / math.sqrt(call_s))


def simulated(cell: Scatter, way: str, seed: int) -> Cell:
    """A cell whose steps and calls scatter so, independently. The true `used` is call_s ÷ step_s."""
    chance, clock = random.Random(seed), SimulatedClock()

    def lasting(mean_s: float, scatter: float) -> Callable[[], None]:
        shape = math.sqrt(math.log1p(scatter**2))  # log-normal, with this mean

        def work() -> None:
            clock.now_s += mean_s * math.exp(chance.gauss(-(shape**2) / 2, shape))

        return work

    kernel = CeilingKernel("fp32", "simulated", 1, lasting(cell.call_s, cell.call))
    found = one_cell(way, lasting(cell.step_s, cell.step), cell.step_s, kernel, clock)
    truth = cell.call_s / cell.step_s
    return found | {"held": way != ALONE and found["low"] <= truth <= found["high"]}


def of_run(run: Path, series: int) -> list[str]:
    """A table in Markdown: of each way the time of all cells together, in the mean of the series."""
    cells = list(scatters_of(run))
    if not cells:
        return [f"{run.name}: no converged cell with {LEAST_PAIRS} pairs of blocks beside a ceiling"]
    lines = [
        f"{run.name}: {len(cells)} cells, {series} series of each.",
        "",
        "| way | time of all cells | ÷ alone | longest cell | converged | intervals with the truth |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    alone_s = math.nan
    for way in WAYS:
        found = [[simulated(cell, way, seed) for seed in range(series)] for cell in cells]
        times_s = [fmean(one["took_s"] for one in each) for each in found]
        ended = [one for each in found for one in each if one["status"] == "ok"]
        alone_s = sum(times_s) if way == ALONE else alone_s
        held = "" if way == ALONE else f"{fmean(one['held'] for one in ended):.1%}"
        lines.append(
            f"| {way} | {sum(times_s):.0f} s | {sum(times_s) / alone_s:.2f} | {max(times_s):.1f} s | "
            f"{len(ended) / (series * len(cells)):.1%} | {held} |"
        )
    return lines


def condition_of(cell: Cell) -> tuple[float, bool]:
    """Load and burst of the neighbour that the cell was measured beside: none, where the line does not say."""
    return cell.get("load", 0.0), cell.get("burst", False)


def measure(cells: Path, minutes: float, malloc: str, load: float, burst: bool) -> None:
    """Adds cells to the file until the time is over, the ways in turn. malloc: as of `runners.sweep`. load, burst: of
    the neighbour."""
    import torch

    from measure.ceiling.ceilings import Bench
    from measure.ceiling.trials import Trial
    from measure.timing.blocks import warm_up
    from measure.timing.clocks import clock_for

    torch.manual_seed(0)
    set_malloc(malloc)
    clock = clock_for("cpu")
    trial = Trial("convolution", (8, 128, 28), "channels_last")
    call = Bench("cpu", torch.float32, clock, math.inf).prepared(trial)
    kernel = CeilingKernel("fp32", "convolution", trial.flop, call)
    step = training_step(batch_size=8, pixels=224)
    until_s = time.monotonic() + 60 * minutes
    while time.monotonic() < until_s:
        before = sum(condition_of(cell) == (load, burst) for cell in read(cells))
        with neighbours(load, burst):
            step_s = warm_up(step, clock, Protocol.for_device("cpu")).step_s
            line = one_cell(LIVE[before % len(LIVE)], step, step_s, kernel, clock)
        line |= origin(malloc) | {"at": time.strftime("%Y-%m-%dT%H:%M:%S"), "threads": torch.get_num_threads()}
        line |= {"load": load, "burst": burst}
        with cells.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def report(cells: Sequence[Cell]) -> list[str]:
    """A table in Markdown of measured cells, with rows of each neighbour in the order of their first cells."""
    lines = [
        "| neighbour | way | cells | time of a cell, median | its 95 % interval, median | converged |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for condition in dict.fromkeys(map(condition_of, cells)):
        beside = [cell for cell in cells if condition_of(cell) == condition]
        for way in (way for way in WAYS if way in LIVE or any(cell["way"] == way for cell in beside)):
            mine = [cell for cell in beside if cell["way"] == way]
            start = f"| {name_of(*condition)} | {way} | {len(mine)} |"
            if not mine:
                lines.append(f"{start} not run | | |")
                continue
            width = median(math.log(cell["high"] / cell["low"]) / 2 if cell["low"] else math.inf for cell in mine)
            converged = sum(cell["status"] == "ok" for cell in mine)
            took_s = median(cell["took_s"] for cell in mine)
            lines.append(f"{start} {took_s:.1f} s | ±{width:.1%} | {converged} of {len(mine)} |")
    return lines


def main() -> None:
    parser = cells_parser(__doc__, 20.0, needs_file=False)
    parser.add_argument("--runs", type=Path, metavar="DIR", help="a run, whose cells are simulated instead")
    parser.add_argument("--series", type=int, default=20, help="of each simulated cell and way")
    parser.add_argument("--load", type=float, default=0.0, help="processors that a neighbour keeps busy (0)")
    parser.add_argument("--burst", action="store_true", help="one second of every two")
    options = parser.parse_args()
    if (options.runs is None) is (options.file is None):
        parser.error("expected one of --runs and --file")
    if options.runs:
        print("\n".join(of_run(options.runs, options.series)))
        return
    if not options.report:
        measure(options.file, options.minutes, options.malloc, options.load, options.burst)
    print("\n".join(reports(read(options.file), report)))


if __name__ == "__main__":
    main()
