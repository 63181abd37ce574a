"""`--batch-sizes auto`: powers of two up to the largest batch that fits, and that one, of each model and precision.

The largest is predicted before anything is trained (`runners/footprint/step.py`), with a share of the memory left free.
What was predicted is kept in the run's manifest, so that a resumed run has the same cells. If a cell runs out of memory
in spite of it, the margin was too small: it is raised, and what is still to be measured is planned anew with it.

Kept as JSON, in `Grid.auto`: memory_bytes, margin_ratio, and of each "MODEL PRECISION" its batches, the smallest it
takes, at most how many fit by live bytes, and the lines (bytes without a sample, bytes a sample) of which the highest
is what a batch needs.

The memory is a CUDA device's own; of a CPU what the host has free now.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from analysis.footprint.largest_batch import MOST, in_eights
from analysis.formula.algebra.constraints import amount
from results.kernel import free_bytes
from results.records.cell import Cell, Run
from runners.cli.arguments import MARGIN_RATIO
from runners.cli.output import say
from runners.cli.progress import passing
from runners.footprint.step import Fitting, StepOptions
from runners.sweep.options import as_options, union
from runners.sweep.plan import Grid, auto_key, cell_of, cells
from runners.workers.batches import hyper_of_cell

if TYPE_CHECKING:
    from results.store.store import Store
    from runners.workers.devices import ProbeResult


RAISED_RATIO = 0.05
"""By so much of the memory the margin is larger than what an out-of-memory just showed."""

LARGEST_MARGIN_RATIO = 0.9


def batches_up_to(largest: int, least: int = 1) -> list[int]:
    """Powers of two from `least` to `largest`, and that one; the least alone where nothing fits, whose row says so."""
    if largest < least:
        return [least]
    powers = [2**exponent for exponent in range(largest.bit_length())]
    return sorted({*(power for power in powers if least <= power <= largest), largest})


def needed_bytes(lines: Iterable[Sequence[int]], batch_size: int) -> int:
    """What a batch needs."""
    return max(start + slope * batch_size for start, slope in lines)


def largest_below(lines: Iterable[Sequence[int]], available_bytes: int) -> int:
    """The largest batch that needs no more; 0 where none does."""
    sizes = [(available_bytes - start) // slope if slope > 0 else MOST for start, slope in lines]
    found = min(sizes)
    return found if found > 0 and needed_bytes(lines, found) <= available_bytes else 0


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
                "least": fitting.least,
                "at_most": fitting.at_most,
                "lines": [list(line) for line in fitting.lines],
            }
    auto = {"memory_bytes": memory_bytes, "margin_ratio": margin_ratio, "steps": steps}
    return replace(grid, batch_sizes=(), auto=auto)


def plan_lines(auto: Mapping[str, Any]) -> list[str]:
    """What was planned, a line a model and precision."""
    free = f"{amount(auto['memory_bytes'], 'B')}, {100 * auto['margin_ratio']:.3g} % of it left free"
    lines = []
    for key, step in auto["steps"].items():
        fits = needed_bytes(step["lines"], step["least"]) <= auto["memory_bytes"] * (1 - auto["margin_ratio"])
        words = "predicted to fit into" if fits else "predicted not to fit, and tried, with"
        most = f"; at most {step['at_most']:,} by live bytes" if step.get("at_most") else ""
        lines.append(f"{key}: batch {', '.join(map(str, step['batches']))} ({words} {free}{most})")
    return lines


def corrected(grid: Grid, failed: Cell, done: Collection[Cell]) -> tuple[Grid, str]:
    """The grid after a cell ran out of memory, and what is to be said; "" if it was not one of these batches.

    done: cells that were measured or tried. Batches that need more than is now taken to be there go, but for those; the
    largest that still fits comes in their place. The cell itself stays: its row says what happened.
    """
    auto = grid.auto
    step = auto.get("steps", {}).get(auto_key(failed.model, failed.precision))
    if step is None or failed.batch_size not in step["batches"]:
        return grid, ""
    needed = needed_bytes(step["lines"], failed.batch_size)
    missing = 1 - needed / auto["memory_bytes"]
    margin = min(LARGEST_MARGIN_RATIO, max(auto["margin_ratio"], missing) + RAISED_RATIO)
    available = int(auto["memory_bytes"] * (1 - margin))
    tried = {(auto_key(cell.model, cell.precision), cell.batch_size) for cell in (*done, failed)}
    steps = {key: _lowered(key, each, available, tried) for key, each in auto["steps"].items()}
    words = (
        f"{failed.model} {failed.precision} ran out of memory at batch {failed.batch_size}, predicted to need "
        f"{amount(needed, 'B')}: the margin is now {100 * margin:.3g} %"
    )
    return replace(grid, auto={**auto, "margin_ratio": margin, "steps": steps}), words


def _lowered(key: str, step: Mapping[str, Any], available_bytes: int, tried: Collection[tuple[str, int]]) -> Any:
    """One model's batches with less memory."""
    batches = step["batches"]
    beyond = {size for size in batches if needed_bytes(step["lines"], size) > available_bytes}
    kept = [size for size in batches if size not in beyond or (key, size) in tried]
    largest = in_eights(largest_below(step["lines"], available_bytes))
    new = {largest} if beyond and largest >= step["least"] else set()
    return {**step, "batches": sorted({*kept, *new})}


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
    from runners.workers.worker import WorkerFault

    def ask(model: str, precision: str) -> Fitting | str:
        passing(f"{model} {precision}: which batches fit")
        sizes = hyper_of_cell(cell_of(grid, model, 1, precision))
        kind = probed.device.partition(":")[0]
        found: list[Fitting] = []
        for optimizer, layout in itertools.product(grid.optimizer, grid.layout):
            step = StepOptions(model, precision, optimizer, kind, layout=layout, hyper=sizes)
            task = "runners.footprint.step:fitting"
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
