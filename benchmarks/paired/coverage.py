"""How many of the 95 % intervals of an idle machine's cells hold the true value?

    python -m benchmarks.paired.coverage --file coverage.jsonl --minutes 30 [--quick] [--malloc retain]
    python -m benchmarks.paired.coverage --file coverage.jsonl --report

A cell times the same training step as a cell of `runners.sweep` does: warm-up, then blocks with a
kernel of the ceiling beside each until the rules for a CPU are met (`measure/timing`). It has a step time and a
utilization over the paired ceiling, each with its interval. Each cell is a line of the file; a later call goes on. The
truth is the mean over all cells, which has an interval of its own; a share of cells has one, too (Wilson).

The machine must be idle. `--malloc retain` keeps the memory that a step frees, as that of `runners.sweep` does. Each
machine and setting has a table and a truth of its own. Not claimed: that the cells' mean is the truth of another
process: all cells of a call are of one. An interval covers one window; what moves between windows (clocks, memory,
neighbours outside of a virtual machine) is in the share. So cells are also looked at by where the host had put the
processors, several minutes apart as repeats of one, and with the intervals of any window and of the mean of repeats
that a sweep has (`analysis/utilization/windows.py`): lines are dealt out to runs of `RUN` cells, as a sweep spreads
repeats.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.stats.summary import geometric_mean
from analysis.utilization.placement import far_from_s
from analysis.utilization.step_times import median_round_trip_s
from analysis.utilization.windows import BetweenWindows, Window, between_windows, mean_of_repeats
from benchmarks.paired.neighbours import Cell, cells_parser, mean_log, origin, read, reports, training_step
from runners.sweep.cell import set_malloc

TOGETHER = (3, 5)
"""Cells that are looked at as repeats of one: minutes apart."""

RUN = (13, 3)
"""Cells and repeats of the runs that lines are dealt out to: so many as the published runs have in one precision."""

VALUES = {"step time": "step", "paired utilization": "used"}
"""What has an interval → the beginning of its columns."""


def measure(cells: Path, minutes: float, malloc: str, quick: bool) -> None:
    """Adds cells to the file until the time is over. malloc, quick: as of `runners.sweep`."""
    import torch

    from measure.ceiling.ceilings import Bench
    from measure.ceiling.trials import Trial
    from measure.timing.ceiling_blocks import CeilingKernel
    from measure.timing.clocks import clock_for
    from measure.timing.protocols import Protocol

    torch.manual_seed(0)
    set_malloc(malloc)
    clock, protocol = clock_for("cpu"), Protocol.for_device("cpu", quick)
    trial = Trial("convolution", (8, 128, 28), "channels_last")
    call = Bench("cpu", torch.float32, clock, math.inf).prepared(trial)
    kernel, step = CeilingKernel("fp32", "convolution", trial.flop, call), training_step()
    until_s = time.monotonic() + 60 * minutes
    while time.monotonic() < until_s:
        line = (
            one_cell(step, kernel, clock, protocol)
            | origin(malloc, quick)
            | {
                "load_1min": os.getloadavg()[0],
                "at": time.strftime("%Y-%m-%dT%H:%M:%S"),
                "threads": torch.get_num_threads(),
            }
        )
        with cells.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def one_cell(step: Callable[..., Any], kernel: Any, clock: Any, protocol: Any) -> Cell:
    """A cell as a sweep measures it; of the utilization the step's FLOP are left out, which are the same in each."""
    from analysis.utilization.paired_ceiling import paired_ceiling
    from measure.timing.blocks import blocks_in_order, measure_blocks, warm_up
    from measure.timing.ceiling_blocks import CeilingBlocks

    with CeilingBlocks([kernel], clock, protocol) as beside:
        warm = warm_up(step, clock, protocol, beside=beside)
        timing = measure_blocks(step, clock, protocol, warm.step_s, beside)
    found = paired_ceiling(blocks_in_order(warm, timing, beside.samples), protocol.interval_rule)
    used = found.utilization({"fp32": kernel.flop}) if found else None
    aside = [block.part for block in timing.aside]
    return {
        "step": timing.summary.mean, "step_low": timing.summary.low, "step_high": timing.summary.high,
        "used": used and used.ratio, "used_low": used and used.low, "used_high": used and used.high,
        "status": timing.status, "blocks": len(timing.blocks), "disturbed": aside.count("disturbed"),
        "moved": aside.count("moved"), "round_trip": median_round_trip_s(timing.blocks),
    }  # fmt: skip


def report(cells: Sequence[Cell]) -> list[str]:
    """A table in Markdown; one line where there are fewer than two cells."""
    if len(cells) < 2:
        return ["expected two cells at least: measure longer"]
    converged = sum(cell["status"] == "ok" for cell in cells)
    blocks = sorted(cell["blocks"] for cell in cells)
    moved = sum(cell.get("moved", 0) > 0 for cell in cells)
    placed = by_placement(cells)
    where = ", ".join(f"{len(each)} {name}" for name, each in placed.items() if name != "all")
    lines = [
        f"{len(cells)} cells of {blocks[len(blocks) // 2]} blocks (median), {converged} of them converged.",
        f"Processors: {where or 'one placement'}; in {moved} cells some blocks were set aside for another placement.",
        "",
        "| cells | value | truth within | standard deviation | half width (median) | intervals with the truth |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in placed.items():
        for value, column in VALUES.items():
            lines += [line_of(name, value, column, each)] if len(each) > 1 else []
            if len(each) >= 2 * math.prod(RUN):
                lines.append(line_of(f"{name}, any window", value, column, any_window(each, column)))
                lines.append(line_of(f"{name}, mean of {RUN[1]}", value, column, means(each, column)))
    for count in TOGETHER:
        lines += [line_of(f"{count} together", *value, cells, count) for value in VALUES.items() if len(cells) >= count]
    return lines


def by_placement(cells: Sequence[Cell]) -> dict[str, Sequence[Cell]]:
    """All cells, and where they differ in the time of a cache line between two processors those near and those far."""
    far_s = far_from_s(cell["round_trip"] for cell in cells if cell.get("round_trip"))
    if far_s == math.inf:
        return {"all": cells}
    known = [cell for cell in cells if cell.get("round_trip")]
    near, far = ([cell for cell in known if (cell["round_trip"] >= far_s) is is_far] for is_far in (False, True))
    return {"all": cells, f"near (up to {_most_ns(near):.0f} ns)": near, f"far (up to {_most_ns(far):.0f} ns)": far}


def _most_ns(cells: Sequence[Cell]) -> float:
    return 1e9 * max(cell["round_trip"] for cell in cells)


def line_of(name: str, value: str, column: str, cells: Sequence[Cell], together: int = 1) -> str:
    """The row of one value. A cell without an interval holds nothing and is counted.

    together: so many cells, as far apart in time as there are cells, have one interval: that of their mean, by
    Student's t on their logarithms (as in `reports/sweep/repeats.py`).
    """
    from scipy.stats import binomtest

    logs = [math.log(cell[column]) for cell in cells]
    truth, half = mean_log([cell[column] for cell in cells])
    spread = math.sqrt(sum((each - truth) ** 2 for each in logs) / (len(logs) - 1))
    ends = [(cell[f"{column}_low"], cell[f"{column}_high"]) for cell in cells]
    if together > 1:
        apart = len(cells) // together
        ends = [geometric_mean([cell[column] for cell in cells[at::apart]][:together])[1:] for at in range(apart)]
    known = [(low, high) for low, high in ends if low and high]
    widths = sorted(math.log(high / low) / 2 for low, high in known)
    held = sum(low <= math.exp(truth) <= high for low, high in known)
    share = binomtest(held, len(ends)).proportion_ci(method="wilson")
    width = f"{widths[len(widths) // 2]:.2%}" if widths else "none"
    return (
        f"| {name} | {value} | ±{half:.2%} | {spread:.2%} | {width} | {held} of {len(ends)}: {held / len(ends):.1%} "
        f"({share.low:.1%} to {share.high:.1%}) |"
    )


def any_window(cells: Sequence[Cell], column: str) -> list[Cell]:
    """The cells that have an interval, in their order, with that of any window of a run."""
    known = _known(cells, column)
    found = [*known]
    for lines, windows, between in _runs(known, column):
        for line, (low, high) in zip(lines, map(between.interval, windows), strict=True):
            found[line] = known[line] | {f"{column}_low": low, f"{column}_high": high}
    return found


def means(cells: Sequence[Cell], column: str) -> list[Cell]:
    """The mean of each cell of a run over its repeats, with its interval."""
    found = []
    for _, windows, between in _runs(_known(cells, column), column):
        for cell in range(RUN[0]):
            ends = mean_of_repeats([window.value for window in windows[cell :: RUN[0]]], between)
            found.append(dict(zip((column, f"{column}_low", f"{column}_high"), ends, strict=True)))
    return found


def _known(cells: Sequence[Cell], column: str) -> list[Cell]:
    """Those with an interval."""
    return [cell for cell in cells if cell[f"{column}_low"] and cell[f"{column}_high"]]


def _runs(known: Sequence[Cell], column: str) -> Iterator[tuple[range, list[Window], BetweenWindows]]:
    """The lines of each run, what was measured in them, and what its windows differ by.

    Each run has lines from the whole file, as far apart as there are runs, and its cells take them in turn.
    """
    count = len(known) // math.prod(RUN)
    for first in range(count):
        lines = range(first, len(known), count)
        windows = [Window(*(known[line][f"{column}{end}"] for end in ("", "_low", "_high"))) for line in lines]
        between = between_windows([windows[cell :: RUN[0]] for cell in range(RUN[0])])
        assert between is not None  # 26 degrees of freedom at least
        yield lines, windows, between


def main() -> None:
    parser = cells_parser(__doc__, 30.0)
    parser.add_argument("--quick", action="store_true", help="cells as of runners.sweep --quick")
    options = parser.parse_args()
    if not options.report:
        measure(options.file, options.minutes, options.malloc, options.quick)
    print("\n".join(reports(read(options.file), report)))


if __name__ == "__main__":
    main()
