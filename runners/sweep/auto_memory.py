"""What `--batch-sizes auto` needs of a machine: how much memory there is, what fits by prediction, and what is planned
anew when a prediction was wrong. The rules are `runners/sweep/auto_batches.py`'s."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.kernel import free_bytes
from results.records.cell import Cell, Run
from runners.cli.arguments import MARGIN_RATIO
from runners.cli.output import say
from runners.cli.progress import passing
from runners.footprint.fit import Fitting
from runners.sweep.auto_batches import corrected, resolved
from runners.sweep.options import as_options, union
from runners.sweep.plan import Grid, cell_of, cells
from runners.workers.batches import hyper_of_cell

if TYPE_CHECKING:
    from results.store.store import Store
    from runners.workers.devices import ProbeResult

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
        return probed.properties.memory_bytes or 0
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
    """What asks a `launch.Worker` for a model and precision of this grid: the least that fits of its layouts and
    optimizers."""
    from runners.footprint.step import StepOptions
    from runners.workers.worker import WorkerFault

    def ask(model: str, precision: str) -> Fitting | str:
        passing(f"{model} {precision}: which batches fit")
        sizes = hyper_of_cell(cell_of(grid, model, 1, precision))
        kind = probed.device.partition(":")[0]
        found: list[Fitting] = []
        for optimizer, layout in itertools.product(grid.optimizer, grid.layout):
            step = StepOptions(model, precision, optimizer, kind, layout=layout, hyper=sizes)
            task = "runners.footprint.fit:fitting"
            answer = worker.call(task, step, bytes_, margin, probed.name, timeout_s=TIMEOUT_S)
            if isinstance(answer, WorkerFault):
                return answer.reason
            found.append(answer)
        return min(found, key=lambda fitting: fitting.largest)

    return ask


def replanning(store: Store, grid: Grid, earlier: Sequence[Grid]) -> Callable[[Run, list[Cell]], list[Cell]]:
    """What plans anew after a cell whose batch was predicted to fit ran out of memory; the manifest gets it."""
    state = {"grid": grid}

    def replan(run: Run, waiting: list[Cell]) -> list[Cell]:
        if run.status != "out_of_memory":
            return waiting
        planned, left = union(state["grid"], earlier), {cell.cell_id for cell in waiting}
        failed = next(cell for cell in planned if cell.cell_id == run.cell_id)
        changed, words = corrected(state["grid"], failed, [cell for cell in planned if cell.cell_id not in left])
        if not words:
            return waiting
        say(words)
        before, now = ({cell.cell_id: cell for cell in cells(each)} for each in (state["grid"], changed))
        state["grid"] = changed
        store.replace_manifest(replace(store.manifest, options=as_options(changed, earlier)))
        kept = [cell for cell in waiting if cell.cell_id in now or cell.cell_id not in before]
        return [*kept, *(cell for number, cell in now.items() if number not in before)]

    return replan
