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
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from analysis.formula.algebra.constraints import amount
from results.process import free_bytes
from runners.cli.arguments import MARGIN_RATIO
from runners.cli.progress import passing
from runners.sweep.plan import Grid, auto_key, cell_of
from runners.workers.any_model import hyper_of_cell
from runners.workers.traced_step import Fitting, StepOptions

if TYPE_CHECKING:
    from runners.workers.devices import ProbeResult


def batches_up_to(largest: int, least: int = 1) -> list[int]:
    """Powers of two from `least` to `largest`, and that one; the least alone where nothing fits, whose row says so."""
    if largest < least:
        return [least]
    powers = [2**exponent for exponent in range(largest.bit_length())]
    return sorted({*(power for power in powers if least <= power <= largest), largest})


def resolved(grid: Grid, memory_bytes: int, margin_ratio: float, ask: Callable[[str, str], Fitting | str]) -> Grid:
    """The grid with batches for each of its models and precisions; those that it has already stay.

    ask: model, precision → what fits, or why nobody knows, which raises ValueError.
    """
    steps = dict(grid.auto.get("steps", {}))
    asked: dict[tuple[str, str | None], Fitting | str] = {}
    for model in grid.models:
        for precision in grid.precisions:
            key = auto_key(model, precision)
            if key in steps:
                continue
            alike = (model, PRECISIONS[precision].autocast)  # what else a precision is changes no byte
            if alike not in asked:
                asked[alike] = ask(model, precision)
            fitting = asked[alike]
            if isinstance(fitting, str):
                raise ValueError(f"--batch-sizes auto: {model}: {fitting}; say sizes instead")
            steps[key] = {
                "batches": batches_up_to(fitting.largest, fitting.least),
                "largest": fitting.largest,
                "at_most": fitting.at_most,
            }
    auto = {"memory_bytes": memory_bytes, "margin_ratio": margin_ratio, "steps": steps}
    return replace(grid, batch_sizes=(), auto=auto)


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


TIMEOUT_S = 600.0


def grid_with_batches(grid: Grid, probed: ProbeResult) -> Grid:
    """The grid with its batches. What the run was planned with before stays.

    Raises ValueError where nobody can say what fits.
    """
    from runners.workers.pool import Worker

    bytes_ = grid.auto.get("memory_bytes") or memory_bytes(probed)
    margin = grid.auto.get("margin_ratio", MARGIN_RATIO)
    worker = Worker("footprint")
    try:
        return resolved(grid, bytes_, margin, _asking(worker, grid, probed, bytes_, margin))
    finally:
        worker.stop()
        passing("")


def memory_bytes(probed: ProbeResult) -> int:
    """The memory of a device: a CUDA device's own; of a CPU, what the host has free now."""
    if probed.device.startswith("cuda"):
        return probed.properties.get("memory_bytes") or 0
    return host_bytes()


def host_bytes(kernel: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int:
    """What the kernel and the control group still give this process. Raises ValueError where neither says."""
    found = free_bytes(kernel, group)
    if found is None:
        raise ValueError("--batch-sizes auto: the system does not say how much memory is free; say sizes instead")
    return found


def _asking(
    worker: Any, grid: Grid, probed: ProbeResult, bytes_: int, margin: float
) -> Callable[[str, str], Fitting | str]:
    """What asks a `pool.Worker` for a model and precision of this grid: the least that fits of its layouts and
    optimizers."""
    from runners.workers.pool import WorkerFault

    def ask(model: str, precision: str) -> Fitting | str:
        passing(f"{model} {precision}: which batches fit")
        sizes = hyper_of_cell(cell_of(grid, model, 1, precision))
        kind = probed.device.partition(":")[0]
        found: list[Fitting] = []
        for optimizer, layout in itertools.product(grid.optimizer, grid.layout):
            step = StepOptions(model, precision, optimizer, kind, layout=layout, hyper=sizes)
            task = "runners.workers.traced_step:fitting"
            answer = worker.call(task, step, bytes_, margin, probed.name, timeout_s=TIMEOUT_S)
            if isinstance(answer, WorkerFault):
                return answer.reason
            found.append(answer)
        return min(found, key=lambda fitting: fitting.largest)

    return ask
