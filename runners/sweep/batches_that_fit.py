"""Finds the batch sizes of `--batch-sizes auto`: powers of two up to the largest batch that is predicted to fit.

`with_batches` takes a grid and its device, and returns the grid with batch sizes for each model and precision.
`plan_lines` returns a line of text about each of them. Not claimed: that a predicted batch trains. A batch that runs
out of memory has a row that says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from results.process import free_bytes
from runners.cli.arguments import MARGIN_RATIO
from runners.cli.output import show_transient
from runners.sweep.plan import Grid, auto_key, cell_of
from runners.workers.any_model import hyper_of_cell
from runners.workers.devices import ProbeResult
from runners.workers.pool import Worker, WorkerFault

FITTING_TIMEOUT_S = 600.0
"""Limit for predicting the largest batch of a model and precision."""


def batches_up_to(largest: int, least: int = 1) -> list[int]:
    """Return powers of two from `least` to `largest`, and `largest`. If nothing fits, return only `least`, whose row
    then says so."""
    if largest < least:
        return [least]
    powers = [2**exponent for exponent in range(largest.bit_length())]
    return sorted({*(power for power in powers if least <= power <= largest), largest})


def with_batches(grid: Grid, probed: ProbeResult) -> Grid:
    """Return the grid with batch sizes that fit, for each of its models and precisions. Batch sizes that the grid has
    already stay.

    The largest batch is predicted before anything is trained (`runners/workers/traced_step.py`). A share of the memory
    is left free. The memory is a CUDA device's own, or for a CPU the host's free memory now.

    Raises ValueError if it cannot be predicted.
    """
    from runners.workers.traced_step import StepOptions

    on_cuda = probed.device.startswith("cuda")
    memory_bytes = grid.auto.get("memory_bytes") or (probed.properties.get("memory_bytes") if on_cuda else free_bytes())
    if memory_bytes is None:
        raise ValueError("--batch-sizes auto: the system does not say how much memory is free; give sizes instead")
    margin_ratio, steps = grid.auto.get("margin_ratio", MARGIN_RATIO), dict(grid.auto.get("steps", {}))
    worker = Worker("footprint")
    try:
        for model, precision in itertools.product(grid.models, grid.precisions):
            if (key := auto_key(model, precision)) in steps:
                continue
            show_transient(f"{model} {precision}: which batches fit")
            sizes, fits = hyper_of_cell(cell_of(grid, model, 1, precision)), list[Any]()
            for optimizer, layout in itertools.product(grid.optimizer, grid.layout):
                step = StepOptions(
                    model, precision, optimizer, probed.device.partition(":")[0], layout=layout, hyper=sizes
                )
                request = (step, memory_bytes, margin_ratio, probed.name)
                answer = worker.call("runners.workers.traced_step:fitting", *request, timeout_s=FITTING_TIMEOUT_S)
                if isinstance(answer, WorkerFault):
                    raise ValueError(f"--batch-sizes auto: {model}: {answer.reason}; give sizes instead")
                fits.append(answer)
            least = min(fits, key=lambda fit: fit.fits)
            steps[key] = {
                "batches": batches_up_to(least.fits, min(least.needed)),
                "largest": least.fits,
                "at_most": least.largest_batch,
            }
    finally:
        worker.stop()
        show_transient("")
    return replace(
        grid, batch_sizes=(), auto={"memory_bytes": memory_bytes, "margin_ratio": margin_ratio, "steps": steps}
    )


def plan_lines(auto: Mapping[str, Any]) -> list[str]:
    """Return the plan, a line for each model and precision."""
    from analysis.formula.requests import amount

    free = f"{amount(auto['memory_bytes'], 'B')}, {100 * auto['margin_ratio']:.3g} % of it left free"
    lines = []
    for key, step in auto["steps"].items():
        fits = step.get("largest", step["batches"][-1]) >= step["batches"][0]
        verdict = "predicted to fit into" if fits else "predicted not to fit, and tried, with"
        most = f"; at most {step['at_most']:,} by live bytes" if step.get("at_most") else ""
        lines.append(f"{key}: batch {', '.join(map(str, step['batches']))} ({verdict} {free}{most})")
    return lines
