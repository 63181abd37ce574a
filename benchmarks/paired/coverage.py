"""How many of the 95 % intervals of an idle machine's cells hold the true value?

    python -m benchmarks.paired.coverage --file coverage.jsonl --minutes 30
    python -m benchmarks.paired.coverage --file coverage.jsonl --report

A cell times the same training step as a cell of `runners.sweep --paired-ceiling` does: warm-up, then blocks with a
kernel of the ceiling beside each until the rules for a CPU are met (`measure/timing`). It has a step time and a
utilization over the paired ceiling, each with its interval. Each cell is a line of the file; a later call goes on. The
truth is the mean over all cells, which has an interval of its own; a share of cells has one, too (Wilson).

The machine must be idle. Not claimed: that the cells' mean is the truth of another process: all cells of a call are of
one. An interval covers one window; what moves between windows (clocks, memory, neighbours outside of a virtual machine)
is in the share.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.paired.neighbours import Cell, mean_log, run, training_step

VALUES = {"step time": "step", "paired utilization": "used"}
"""What has an interval → the beginning of its columns."""


def measure(cells: Path, minutes: float) -> None:
    """Adds cells to the file until the time is over."""
    import torch

    from measure.ceiling import Bench, Trial
    from measure.timing import CeilingKernel, Protocol, clock_for

    torch.manual_seed(0)
    clock, protocol = clock_for("cpu"), Protocol.for_device("cpu")
    trial = Trial("convolution", (8, 128, 28), "channels_last")
    call = Bench("cpu", torch.float32, clock, math.inf).prepared(trial)
    kernel, step = CeilingKernel("fp32", "convolution", trial.flop, call), training_step()
    until_s = time.monotonic() + 60 * minutes
    while time.monotonic() < until_s:
        line = one_cell(step, kernel, clock, protocol) | {
            "load_1min": os.getloadavg()[0],
            "at": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "threads": torch.get_num_threads(),
        }
        with cells.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def one_cell(step: Callable[..., Any], kernel: Any, clock: Any, protocol: Any) -> Cell:
    """A cell as a sweep measures it; of the utilization the step's FLOP are left out, which are the same in each."""
    from analysis.utilization.paired_ceiling import paired_ceiling
    from measure.timing import CeilingBlocks, blocks_in_order, measure_blocks, warm_up

    with CeilingBlocks([kernel], clock, protocol) as beside:
        warm = warm_up(step, clock, protocol)
        timing = measure_blocks(step, clock, protocol, warm.step_s, beside)
    found = paired_ceiling(blocks_in_order(warm, timing, beside.samples), protocol.interval_rule)
    used = found.utilization({"fp32": kernel.flop}) if found else None
    return {
        "step": timing.summary.mean, "step_low": timing.summary.low, "step_high": timing.summary.high,
        "used": used and used.ratio, "used_low": used and used.low, "used_high": used and used.high,
        "status": timing.status, "blocks": len(timing.blocks), "disturbed": len(timing.aside),
    }  # fmt: skip


def report(cells: Sequence[Cell]) -> list[str]:
    """A table in Markdown; one line where there are fewer than two cells."""
    if len(cells) < 2:
        return ["expected two cells at least: measure longer"]
    converged = sum(cell["status"] == "ok" for cell in cells)
    blocks = sorted(cell["blocks"] for cell in cells)
    lines = [
        f"{len(cells)} cells of {blocks[len(blocks) // 2]} blocks (median), {converged} of them converged.",
        "",
        "| value | truth within | standard deviation of cells | half width (median) | intervals with the truth |",
        "| --- | --- | --- | --- | --- |",
    ]
    return lines + [line_of(name, column, cells) for name, column in VALUES.items()]


def line_of(name: str, column: str, cells: Sequence[Cell]) -> str:
    """The row of one value. A cell without an interval holds nothing and is counted."""
    from scipy.stats import binomtest

    logs = [math.log(cell[column]) for cell in cells]
    truth, half = mean_log([cell[column] for cell in cells])
    spread = math.sqrt(sum((each - truth) ** 2 for each in logs) / (len(logs) - 1))
    known = [cell for cell in cells if cell[f"{column}_low"] and cell[f"{column}_high"]]
    widths = sorted(math.log(cell[f"{column}_high"] / cell[f"{column}_low"]) / 2 for cell in known)
    held = sum(cell[f"{column}_low"] <= math.exp(truth) <= cell[f"{column}_high"] for cell in known)
    share = binomtest(held, len(cells)).proportion_ci(method="wilson")
    width = f"{widths[len(widths) // 2]:.2%}" if widths else "none"
    return (
        f"| {name} | ±{half:.2%} | {spread:.2%} | {width} | {held} of {len(cells)}: {held / len(cells):.1%} "
        f"({share.low:.1%} to {share.high:.1%}) |"
    )


def main() -> None:
    run(__doc__, measure, report, 30.0)


if __name__ == "__main__":
    main()
