"""What a made-up H200 says of itself, what it was asked for, and what its kernels reached: for `made_up_evidence`."""

from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import Any

from analysis.devices import peaks
from cleaning.gates.evidence import OK, CheckResult, SelfTest
from results.records.cell import Ceiling, Parameters, Run, Sample
from results.records.counts import Operation, ProfiledOperation, Storage
from results.records.rows import header

HIGHEST_HZ = 1_980_000_000
VERSION = "0.1.0+g0123456789ab"
STARTED_AT = "2026-01-02T03:04:05Z"
ITEM_BYTES = {"float32": 4, "bfloat16": 2}


def environment(device_name: str) -> dict[str, Any]:
    return {
        "name": device_name,
        "device": "cuda",
        "driver": "570.10",
        "torch": "2.15.0",
        "compute_capability": "9.0",
        "multiprocessors": 132,
        "clock_hz": HIGHEST_HZ,
        "harness_version": VERSION,
    }


CHECKS = {
    "rate fp32": 47e12,
    "rate tf32": 350e12,
    "rate amp-bf16": 700e12,
    "rate amp-fp16": 700e12,
    "convolution fp32": 45e12,
    "convolution tf32": 320e12,
    "convolution amp-bf16": 650e12,
    "convolution amp-fp16": 650e12,
    "flags": 0,
    "events": 1.001,
    "sleep": 2.003,
    "count": 1.0,
    "ieee fp32": 3e-7,
    "intervals": 8,
    "memory resnet18": 1.0,
    "memory mobilenet_v2": 1.0,
}
"""Check of a self-test → what it found."""


def self_test(device_name: str) -> SelfTest:
    """One that passed, on this device."""
    checks = tuple(CheckResult(name, OK, found, "about that") for name, found in CHECKS.items())
    return SelfTest(
        device=device_name,
        verdict=OK,
        checks=checks,
        driver="570.10",
        torch_version="2.15.0",
        harness_version=VERSION,
        tested_at=STARTED_AT,
    )


def peak_row(device_name: str) -> dict[str, Any] | None:
    """As `runners.sweep` keeps it in the manifest."""
    row = peaks.lookup(device_name)
    if row is None:
        return None
    told = ("name", "row_id", "source", "verification", "bandwidth_bytes_per_s")
    return {**{name: getattr(row, name) for name in told}, "peaks": dict(row.peaks)}


def options(runs: Iterable[Run]) -> dict[str, Any]:
    """A sweep a cell, the last one's options with the others under "earlier"."""
    grids = [_grid(run) for run in runs]
    return {**grids[-1], "earlier": grids[:-1]}


def _grid(run: Run) -> dict[str, Any]:
    many = {"model": "models", "batch_size": "batch_sizes", "precision": "precisions"}
    grid: dict[str, Any] = {"auto": {}, "peak_tflops": None, "repeat": run.repeat + 1}
    for name in header(Parameters):
        value = getattr(run, name)
        if name in many:
            grid[many[name]] = [value]
        elif name != "repeat":
            grid[name] = list(value) if isinstance(value, tuple) else value
    return grid


def ceilings(session: str, rates: dict[str, float], units: dict[str, str], device_name: str) -> list[Ceiling]:
    """Two kernels a precision, the product faster than the convolution."""
    kernels = (("matmul", "8192x8192x8192", "", "square", 2 * 8192**3, 1.0),)
    images = ("convolution", "256x256x28x28, 256 3x3 kernels", "channels_last", "", 2 * 256**3 * 28**2 * 9, 0.9)
    found = []
    for precision, rate in rates.items():
        for operation, shape, layout, family, flop, share in (*kernels, images):
            row = Ceiling(
                session=session,
                device="cuda",
                precision=precision,
                unit=units[precision],
                operation=operation,
                shape=shape,
                layout=layout,
                family=family,
                flop=flop,
                repeats=20,
                device_name=device_name,
            )
            found.append(at_rate(row, rate * share))
    return found


def at_rate(row: Ceiling, flop_per_s: float) -> Ceiling:
    """The same kernel at another rate: the times of its calls go with it."""
    median_s = (row.flop or 0) / flop_per_s
    times = {"median_s": median_s, "mean_s": 1.002 * median_s, "best_s": 0.99 * median_s}
    return replace(row, flop_per_s=flop_per_s, **times)


def storages(table: list[Operation], weights: Iterable[int], given: Iterable[int]) -> list[Storage]:
    """The storages of a table: as large as what is written into them first, or as the largest that is read.

    weights: float32 whatever reads them; given: of inputs, and of gradients that no operation here writes.
    """
    sizes: dict[int, int] = {}
    born: dict[int, int] = {}
    died: dict[int, int] = {}
    for call in table:
        for storage, shape, dtype in zip(call.reads, call.input_shapes, call.input_dtypes, strict=True):
            if storage not in born:
                wide = 4 if storage in weights else ITEM_BYTES[dtype]
                sizes[storage] = max(sizes.get(storage, 0), _elements(shape) * wide)
            died[storage] = call.index
        for storage, shape, dtype in zip(call.writes, call.output_shapes, call.output_dtypes, strict=False):
            if storage not in sizes:
                born[storage], sizes[storage] = call.index, _elements(shape) * ITEM_BYTES[dtype]
            died[storage] = call.index
    role = {**dict.fromkeys(weights, "weight"), **dict.fromkeys(given, "input")}
    return [
        Storage(i, sizes[i], role.get(i, "activation"), born.get(i, -1), None if i in role else died[i])
        for i in sorted(sizes)
    ]


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def around(run: Run, blocks: list[Sample]) -> list[Sample]:
    """All samples of a cell: a warm-up before its blocks, the phases of its steps and profiled steps after them."""
    if not blocks:
        return []
    step_s = sum(block.device_s or 0.0 for block in blocks) / sum(block.steps for block in blocks)
    warm, start_s = [], blocks[0].start_s - 11 * 1.002 * step_s
    for steps in (1, 5, 5):
        warm.append(_sample(blocks[0], "warmup", steps, start_s, steps * step_s))
        start_s += 1.001 * steps * step_s
    after, end_s = [], blocks[-1].start_s + 1.001 * blocks[-1].wall_s
    for number in range(2):
        for phase, share in (("forward", 0.3), ("backward", 0.6), ("optimizer", 0.1)):
            one = _sample(blocks[0], "phase", 5, end_s + number * 6 * step_s, 5 * share * step_s)
            after.append(replace(one, phase=phase, sync_wait_s=None))
    for number in range(3 if run.profiled else 0):
        after.append(_sample(blocks[0], "profiled", 1, end_s + (20 + 3 * number) * step_s, 1.2 * step_s))
    return [replace(sample, index=index) for index, sample in enumerate((*warm, *blocks, *after))]


def _sample(like: Sample, part: str, steps: int, start_s: float, device_s: float) -> Sample:
    times = {"start_s": start_s, "device_s": device_s, "wall_s": 1.0005 * device_s, "sync_wait_s": device_s / 10}
    return replace(like, part=part, steps=steps, **times)


def summarised(run: Run, rows: list[Sample]) -> Run:
    """A cell's row with what its samples give, where nobody chose otherwise."""
    warm = [row for row in rows if row.part == "warmup"]
    whole = [row for row in rows if row.part == "measure"]
    if not whole:
        return run
    step_s = sum(row.device_s or 0.0 for row in whole) / sum(row.steps for row in whole)
    given = {
        "warmup_steps": sum(row.steps for row in warm),
        "warmup_s": sum(row.wall_s for row in warm),
        "sync_wait_ratio": median(row.sync_wait_s or 0.0 for row in whole) / step_s,
        "duration_s": 1.1 * sum(row.wall_s for row in rows),
    }
    return replace(run, **{name: value for name, value in given.items() if getattr(run, name) is None})


def nested(calls: list[ProfiledOperation]) -> list[ProfiledOperation]:
    """The calls of a profile one after the other, those inside of another within its time."""
    found: list[ProfiledOperation] = []
    for call in calls:
        inner = call.parent is not None
        start_s = found[call.parent or 0].start_s + 1e-4 if inner else 0.001 * call.index
        thread = found[call.parent or 0].thread if inner else call.thread
        found.append(replace(call, start_s=start_s, time_s=5e-4 if inner else 9e-4, thread=thread))
    return found
