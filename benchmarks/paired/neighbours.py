"""Does a step timed together with a ceiling kernel keep its ratio while planted neighbours take processor time?

    python -m benchmarks.paired.neighbours --file neighbours.jsonl --minutes 3
    python -m benchmarks.paired.neighbours --file neighbours.jsonl --report

A cell times a training step and a convolution in rounds of four blocks, A B B A (`measure.timing.measure_pairs`),
beside processes that spin: none, half of one processor, one, two; steadily or one second of every two. The ratio of the
kernel's time to the step's is the step's utilization of the kernel's rate, but for a constant. Each cell is a line of
the file; a later call goes on with the condition that has the fewest. The report compares each condition with the idle
cells: how much longer a step took, how far the ratio is from the idle mean, and how many of the 95 % intervals hold it.

Not claimed: that a spinning process stands for every neighbour (none takes memory bandwidth or a hardware thread here).
The machine must be otherwise idle. A condition with few cells says little of coverage: their number is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from results.records import MALLOC_SETTINGS
from runners.sweep.cell import set_malloc

LOADS = (0.0, 0.5, 1.0, 2.0)
"""Processors that the neighbours keep busy while they run."""
BURST_S = 1.0
SLICE_S = 0.01
CELL_S = 6.0

CONDITIONS = tuple((load, burst) for load in LOADS for burst in (False, True) if load or not burst)
Cell = dict[str, Any]


def spin(duty: float, burst: bool) -> None:
    """Busy for a share of each slice, in bursts of every other second alone, until it is ended."""
    begun_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        if burst and int((now_s - begun_s) / BURST_S) % 2:
            time.sleep(SLICE_S)
            continue
        while time.monotonic() < now_s + duty * SLICE_S:
            pass
        if duty < 1:
            time.sleep((1 - duty) * SLICE_S)


@contextmanager
def neighbours(load: float, burst: bool) -> Iterator[None]:
    """Processes that take so much time of processors, until the block ends."""
    shares = [1.0] * int(load) + ([load % 1] if load % 1 else [])
    started = [multiprocessing.Process(target=spin, args=(share, burst), daemon=True) for share in shares]
    for each in started:
        each.start()
    try:
        yield
    finally:
        for each in started:
            each.terminate()
            each.join()


def measure(cells: Path, minutes: float, malloc: str) -> None:
    """Adds cells to the file until the time is over. malloc: as of `runners.sweep`."""
    import torch

    from measure.ceiling import Bench, Trial
    from measure.timing import Protocol, clock_for, measure_pairs

    torch.manual_seed(0)
    set_malloc(malloc)
    clock = clock_for("cpu")
    bench = Bench("cpu", torch.float32, clock, math.inf)
    kernel = bench.prepared(Trial("convolution", (8, 128, 28), "channels_last"))
    step = training_step()
    protocol = Protocol.for_device("cpu", time_left_s=CELL_S, target_ci_ratio=0.001)
    until_s = time.monotonic() + 60 * minutes
    while time.monotonic() < until_s:
        load, burst = next_condition(read(cells))
        with neighbours(load, burst):
            found = measure_pairs(step, kernel, clock, protocol)
        ratio = found.ratio
        line = {
            "load": load, "burst": burst, "step_s": found.a_step_s, "kernel_s": found.b_step_s, "ratio": ratio.ratio,
            "low": ratio.low, "high": ratio.high, "rounds": ratio.rounds, "load_1min": os.getloadavg()[0],
            "at": time.strftime("%Y-%m-%dT%H:%M:%S"), "threads": torch.get_num_threads(),
        } | origin(malloc)  # fmt: skip
        with cells.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def training_step(batch_size: int = 4, pixels: int = 64) -> Any:
    """ResNet-18: at batch 4 and 64 pixels some tens of milliseconds on two cores."""
    import torch
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images, labels = torch.randn(batch_size, 3, pixels, pixels), torch.randint(0, 10, (batch_size,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def next_condition(cells: Sequence[Cell]) -> tuple[float, bool]:
    """The one with the fewest cells; idle ones count half, as they are the reference."""
    done = dict.fromkeys(CONDITIONS, 0.0)
    for cell in cells:
        condition = (cell["load"], cell["burst"])
        done[condition] += 1.0 if condition[0] else 0.5
    return min(CONDITIONS, key=lambda condition: done[condition])


def read(cells: Path) -> list[Cell]:
    """The cells so far; none of a file that is not there."""
    return [json.loads(line) for line in cells.read_text().splitlines()] if cells.exists() else []


def report(cells: Sequence[Cell]) -> list[str]:
    """A table in Markdown. The truth is the idle cells' mean log ratio, with the interval of that mean."""
    idle = [cell for cell in cells if not cell["load"]]
    if len(idle) < 2:
        return ["expected two idle cells at least: measure longer"]
    truth, half = mean_log([cell["ratio"] for cell in idle])
    step_s, kernel_s = (fmean(cell[name] for cell in idle) for name in ("step_s", "kernel_s"))
    lines = [
        f"Idle: {len(idle)} cells, the ratio's mean within ±{half:.1%} (95 %).",
        "",
        "| neighbours | cells | step | kernel | paired utilization ÷ idle | farthest cell | intervals with the truth |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for load, burst in CONDITIONS:
        mine = [cell for cell in cells if (cell["load"], cell["burst"]) == (load, burst)]
        name = name_of(load, burst)
        if not mine:
            lines.append(f"| {name} | 0 | not run | | | | |")
            continue
        shifts = [math.exp(truth - math.log(cell["ratio"])) - 1 for cell in mine]  # utilization is 1 ÷ ratio
        held = sum((cell["low"] or 0.0) <= math.exp(truth) <= (cell["high"] or math.inf) for cell in mine)
        slower = [
            fmean(cell[each] for cell in mine) / base for each, base in (("step_s", step_s), ("kernel_s", kernel_s))
        ]
        lines.append(
            f"| {name} | {len(mine)} | {slower[0]:.2f} × | {slower[1]:.2f} × | {fmean(shifts):+.1%} | "
            f"{max(shifts, key=abs):+.1%} | {held} of {len(mine)} |"
        )
    return lines


def name_of(load: float, burst: bool) -> str:
    """A condition in words."""
    return f"{load:.0%} of a processor, {'bursts' if burst else 'steady'}" if load else "none"


def mean_log(ratios: Sequence[float]) -> tuple[float, float]:
    """(mean of the logarithms, half width of its 95 % interval)."""
    from analysis.stats import summarise

    found = summarise([math.log(ratio) for ratio in ratios], signed=True)
    return found.mean, math.inf if found.high is None else found.high - found.mean


def cells_parser(purpose: str | None, minutes: float, needs_file: bool = True) -> argparse.ArgumentParser:
    """Options of a benchmark whose cells are the lines of a file. minutes: unless given."""
    parser = argparse.ArgumentParser(description=(purpose or "").partition("\n")[0])
    parser.add_argument("--file", type=Path, required=needs_file, help="cells so far, one a line; it is added to")
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--malloc", choices=MALLOC_SETTINGS, default="default", help="as of runners.sweep")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    return parser


def origin(malloc: str, quick: bool = False) -> Cell:
    """What cells must have in common to be compared: a start of a machine (empty: not known), its allocator, quick."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {"machine": boot.read_text().strip() if boot.exists() else "", "malloc": malloc, "quick": quick}


def reports(cells: Sequence[Cell], report: Callable[[Sequence[Cell]], list[str]]) -> list[str]:
    """The report of each origin, in the order of their first cells; with a heading where there are several."""
    groups: dict[tuple[str, str, bool], list[Cell]] = {}
    for cell in cells:
        known = {"machine": "", "malloc": "default", "quick": False} | cell  # cells of before have none of these
        groups.setdefault((known["machine"], known["malloc"], known["quick"]), []).append(cell)
    if len(groups) < 2:
        return report(cells)
    lines = []
    for (_machine, malloc, quick), each in groups.items():
        lines += [f"From {each[0]['at']} on, --malloc {malloc}{' --quick' * quick}:", "", *report(each), ""]
    return lines[:-1]


def main() -> None:
    options = cells_parser(__doc__, 3.0).parse_args()
    if not options.report:
        measure(options.file, options.minutes, options.malloc)
    print("\n".join(reports(read(options.file), report)))


if __name__ == "__main__":
    main()
