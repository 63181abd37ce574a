"""`--batch-sizes auto`: powers of two up to the largest batch that fits, and that one, of each model and precision.

The largest is predicted before anything is trained (`runners/workers/traced_step.py`), with a share of the memory left
free. What was predicted is kept in the run's manifest, so that a resumed run has the same cells. A cell that runs out
of memory in spite of it is a row that says so.

Kept as JSON, in `Grid.auto`: memory_bytes, margin_ratio, and of each "MODEL PRECISION" its batches, the largest that
fits, and at most how many fit by live bytes.

The memory is a CUDA device's own; of a CPU what the host has free now.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis.formula.constraints import amount
from results.process import free_bytes
from runners.cli.arguments import MARGIN_RATIO
from runners.cli.progress import passing
from runners.sweep.plan import Grid, auto_key, cell_of
from runners.workers.any_model import hyper_of_cell
from runners.workers.pool import Worker, WorkerFault
from runners.workers.traced_step import Fitting, StepOptions

if TYPE_CHECKING:
    from runners.workers.devices import ProbeResult

TIMEOUT_S = 600.0


def batches_up_to(largest: int, least: int = 1) -> list[int]:
    """Powers of two from `least` to `largest`, and that one; the least only where nothing fits, whose row says so."""
    if largest < least:
        return [least]
    powers = [2**exponent for exponent in range(largest.bit_length())]
    return sorted({*(power for power in powers if least <= power <= largest), largest})


def with_batches(grid: Grid, probed: ProbeResult) -> Grid:
    """The grid with batches for each of its models and precisions; those that it has already stay.

    Raises ValueError where nobody can say what fits.
    """
    on_cuda = probed.device.startswith("cuda")
    memory_bytes = grid.auto.get("memory_bytes") or (probed.properties.get("memory_bytes") if on_cuda else free_bytes())
    if memory_bytes is None:
        raise ValueError("--batch-sizes auto: the system does not say how much memory is free; say sizes instead")
    margin_ratio, steps = grid.auto.get("margin_ratio", MARGIN_RATIO), dict(grid.auto.get("steps", {}))
    worker = Worker("footprint")
    try:
        for model, precision in itertools.product(grid.models, grid.precisions):
            if (key := auto_key(model, precision)) in steps:
                continue
            passing(f"{model} {precision}: which batches fit")
            sizes, fits = hyper_of_cell(cell_of(grid, model, 1, precision)), list[Fitting]()
            for optimizer, layout in itertools.product(grid.optimizer, grid.layout):
                step = StepOptions(
                    model, precision, optimizer, probed.device.partition(":")[0], layout=layout, hyper=sizes
                )
                request = (step, memory_bytes, margin_ratio, probed.name)
                answer = worker.call("runners.workers.traced_step:fitting", *request, timeout_s=TIMEOUT_S)
                if isinstance(answer, WorkerFault):
                    raise ValueError(f"--batch-sizes auto: {model}: {answer.reason}; say sizes instead")
                fits.append(answer)
            least = min(fits, key=lambda fitting: fitting.largest)
            steps[key] = {
                "batches": batches_up_to(least.largest, least.least),
                "largest": least.largest,
                "at_most": least.at_most,
            }
    finally:
        worker.stop()
        passing("")
    return replace(
        grid, batch_sizes=(), auto={"memory_bytes": memory_bytes, "margin_ratio": margin_ratio, "steps": steps}
    )


def plan_lines(auto: Mapping[str, Any]) -> list[str]:
    """What was planned, a line a model and precision."""
    free = f"{amount(auto['memory_bytes'], 'B')}, {100 * auto['margin_ratio']:.3g} % of it left free"
    lines = []
    for key, step in auto["steps"].items():
        fits = step.get("largest", step["batches"][-1]) >= step["batches"][0]
        words = "predicted to fit into" if fits else "predicted not to fit, and tried, with"
        most = f"; at most {step['at_most']:,} by live bytes" if step.get("at_most") else ""
        lines.append(f"{key}: batch {', '.join(map(str, step['batches']))} ({words} {free}{most})")
    return lines
