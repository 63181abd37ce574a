"""Processes that take processor time beside what is measured, and what the benchmarks of this folder share.

They spin: half of one processor, one, two; steadily or one second of every two. Not claimed: that a spinning process
stands for every neighbour (none takes memory bandwidth or a hardware thread here).
"""

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results.records.vocabulary import MALLOC_SETTINGS

LOADS = (0.0, 0.5, 1.0, 2.0)
"""Processors that the neighbours keep busy while they run."""
BURST_S = 1.0
SLICE_S = 0.01

CONDITIONS = tuple((load, burst) for load in LOADS for burst in (False, True) if load or not burst)
Cell = dict[str, Any]


def spin(duty: float, burst: bool, slice_s: float) -> None:
    """Busy for a share of each slice, in bursts of every other second alone, until it is ended."""
    begun_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        if burst and int((now_s - begun_s) / BURST_S) % 2:
            time.sleep(slice_s)
            continue
        while time.monotonic() < now_s + duty * slice_s:
            pass
        if duty < 1:
            time.sleep((1 - duty) * slice_s)


@contextmanager
def neighbours(load: float, burst: bool, slice_s: float = SLICE_S) -> Iterator[None]:
    """Processes that take so much time of processors, and of each slice, until the block ends."""
    shares = [1.0] * int(load) + ([load % 1] if load % 1 else [])
    started = [multiprocessing.Process(target=spin, args=(share, burst, slice_s), daemon=True) for share in shares]
    for each in started:
        each.start()
    try:
        yield
    finally:
        for each in started:
            each.terminate()
            each.join()


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


def read(cells: Path) -> list[Cell]:
    """The cells so far; none of a file that is not there."""
    return [json.loads(line) for line in cells.read_text().splitlines()] if cells.exists() else []


def name_of(load: float, burst: bool) -> str:
    """A condition in words."""
    return f"{load:.0%} of a processor, {'bursts' if burst else 'steady'}" if load else "none"


def mean_log(ratios: Sequence[float]) -> tuple[float, float]:
    """(mean of the logarithms, half width of its 95 % interval)."""
    from analysis.stats.summary import summarise

    found = summarise([math.log(ratio) for ratio in ratios], signed=True)
    return found.mean, math.inf if found.high is None else found.high - found.mean


def cells_parser(purpose: str | None, minutes: float, needs_file: bool = True) -> argparse.ArgumentParser:
    """Options of a benchmark whose cells are the lines of a file. minutes: unless given."""
    parser = argparse.ArgumentParser(description=(purpose or "").partition("\n")[0])
    parser.add_argument("--file", type=Path, required=needs_file, help="cells so far, one a line; it is added to")
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--malloc", choices=MALLOC_SETTINGS, default="default", help="of memory that a step frees")
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
