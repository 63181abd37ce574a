"""A made-up run of an H200 that passes every gate, in parts, so that a test can plant one fault and write it.

Nothing here was measured. The model is that of `run_fixture` (two convolutions and a product) with storages that say
what needs a gradient; it calls itself resnet50, so that the record applies, and has its parameters: those that none of
the eight calls reads are one storage more. Times are chosen for the utilizations
SHARE × batch ÷ (batch + 4) of the datasheet's peak.
"""

import datetime
import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.devices import peaks
from analysis.stats.summary import LAG1_RAISED
from cleaning.gates.evidence import SELF_TEST_FILE, SelfTest, facts_of
from results.records.cell import Ceiling, Cell, Run, Sample, SessionRow, Telemetry
from results.records.counts import FlopCount, Operation, ProfiledOperation, Storage
from results.store.manifest import Manifest
from results.store.store import Store
from tests.support.made_up import made_up_device, run_fixture
from tests.support.made_up.made_up_device import HIGHEST_HZ, STARTED_AT, VERSION
from tests.support.made_up.made_up_runs import Unsynced

H200 = "NVIDIA H200"
SHEET = {"fp32": 67e12, "tf32": 494.5e12, "amp-bf16": 989.5e12}  # NVIDIA H200 datasheet, dense
UNIT = {"fp32": "fp32", "tf32": "tf32", "amp-bf16": "bf16"}
SHARE = {"fp32": 0.05, "tf32": 0.010, "amp-bf16": 0.008}
CEILING = {"fp32": 52e12, "tf32": 380e12, "amp-bf16": 760e12}
CLOCK_HZ = 1_900_000_000
POWER_W = 420.0
BLOCKS, STEPS = 10, 400

GRID = (
    ("amp-bf16", 8, 0),
    ("amp-bf16", 8, 1),
    ("amp-bf16", 16, 0),
    ("amp-bf16", 32, 0),
    ("tf32", 8, 0),
    ("fp32", 8, 0),
)
PROFILED = ("amp-bf16", 8, 0)
REPEATED = (("fp32", 8, 0), ("fp32", 8, 1), ("tf32", 8, 0))

_READS = ((0, 1), (2, 3), (4,), (7, 4, 5), (8, 5), (8, 4), (14, 2, 3), (10, 0, 1))
_WRITES = ((2,), (4,), (4,), (6,), (9,), (11,), (10, 12), (13,))
"""Storages of the eight calls of `fixture.operations`: 0 images, 1, 3, 5 weights, 7 a bias, 8 on gradients."""

WEIGHTS, GIVEN = (1, 3, 5, 7), (0, 8, 14)
WEIGHT_BYTES = 4
"""GIVEN: the images, and two gradients that calls write which are not among the eight."""

CLASSES = 10
PARAMETERS = {"resnet50": 23_528_522, "resnet18": 11_181_642}
"""Of 10 classes: what torchvision says of its weights (25,557,032 and 11,689,512), 990 × 2049 and 990 × 513 less."""

UNREAD = 15
"""Storage of the weights that no call here reads."""

MEMORY_BYTES = {"peak_memory_bytes": 3_000_000_000, "reserved_memory_bytes": 4_000_000_000}


@dataclass
class Part:
    """One cell and its rows, to be changed at will before it is written."""

    run: Run
    samples: list[Sample]
    telemetry: list[Telemetry]
    counts: list[FlopCount]
    operations: list[Operation]
    storages: list[Storage] = field(default_factory=list)
    profile: list[ProfiledOperation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storages = self.storages or storages_of(self.operations)


@dataclass
class Parts:
    manifest: Manifest
    sessions: list[SessionRow]
    ceilings: list[Ceiling]
    cells: dict[tuple[str, int, int], Part]
    self_test: SelfTest | None = None


def parts(grid: tuple[tuple[str, int, int], ...] = GRID, device_name: str = H200) -> Parts:
    """The run without a fault, made once; each caller has lists of its own, of the same frozen records."""
    made = _parts(grid, device_name)
    lists = ("samples", "telemetry", "counts", "operations", "storages", "profile")
    cells = {
        key: replace(part, **{name: list(getattr(part, name)) for name in lists}) for key, part in made.cells.items()
    }
    return replace(made, sessions=list(made.sessions), ceilings=list(made.ceilings), cells=cells)


@functools.cache
def _parts(grid: tuple[tuple[str, int, int], ...], device_name: str) -> Parts:
    cells = {key: _part(*key) for key in grid}
    manifest = Manifest(
        name="made-up",
        created_at=STARTED_AT,
        commands=("python -m runners.sweep --models resnet50",),
        harness_version=VERSION,
        options=made_up_device.options(part.run for part in cells.values()),
        peak_row=made_up_device.peak_row(device_name),
    )
    ceilings = made_up_device.ceilings("s1", CEILING, UNIT, device_name)
    return Parts(manifest, [session(device_name)], ceilings, cells, made_up_device.self_test(device_name))


def renamed(parts: Parts, key: tuple[str, int, int], model: str) -> None:
    """A cell of another model, wherever it says so."""
    part = parts.cells[key]
    cell_id = replace(part.run.cell, model=model).cell_id
    part.run = replace(part.run, model=model, cell_id=cell_id, parameters=PARAMETERS[model])
    part.storages = storages_of(part.operations, model)
    part.samples = [replace(row, cell_id=cell_id) for row in part.samples]
    part.telemetry = [replace(row, cell_id=cell_id) for row in part.telemetry]
    part.counts = [
        replace(row, cell_id=cell_id, workload=model, parameters=row.parameters and PARAMETERS[model])
        for row in part.counts
    ]
    parts.manifest = replace(parts.manifest, options=made_up_device.options(each.run for each in parts.cells.values()))


def slower(parts: Parts, factor: float) -> Parts:
    """The same run, each block of which took `factor` of its time."""
    for part in parts.cells.values():
        part.samples = [
            replace(s, device_s=s.device_s * factor, wall_s=s.wall_s * factor, start_s=s.start_s * factor)
            for s in part.samples
        ]
    return parts


def write(path: Path, plant: Callable[[Parts], object] | None = None, made: Parts | None = None) -> Path:
    """The run as a directory, with one fault if any is planted."""
    made = made or parts()
    if plant is not None:
        plant(made)
    with Store.create(path, made.manifest, Unsynced()) as store:
        for each in made.sessions:
            store.append_session(each)
        store.append_ceilings(made.ceilings)
        began = datetime.datetime.fromisoformat(STARTED_AT.removesuffix("Z"))
        for number, part in enumerate(made.cells.values()):
            trace_id = f"trace-{number}"
            store.write_operations(trace_id, part.operations, part.storages)
            entry = store.write_profile(part.run.cell_id, 1, part.profile) if part.profile else {}
            samples = made_up_device.around(part.run, part.samples)
            run = made_up_device.summarised(replace(part.run, started_at=f"{began.isoformat()}Z"), samples)
            began += datetime.timedelta(seconds=int(run.duration_s or 0) + 1)
            rows = {"samples.csv": samples, "telemetry.csv": part.telemetry, "flop_counts.csv": part.counts}
            store.commit(replace(run, trace_id=trace_id, committed=entry), rows)
    if made.self_test is not None:
        (path / SELF_TEST_FILE).write_text(json.dumps(asdict(made.self_test)), encoding="utf-8")
    return path


def session(device_name: str = H200, name: str = "s1") -> SessionRow:
    row = peaks.lookup(device_name)
    return SessionRow(
        session=name,
        started_at=STARTED_AT,
        host="host",
        device="cuda",
        device_name=device_name,
        driver="570.10",
        torch_version="2.15.0",
        peak_row=row.row_id if row else "",
        environment=made_up_device.environment(device_name),
        preflight={"other_processes": 0, "sm_clock_max_hz": HIGHEST_HZ, "power_limit_w": 700.0},
    )


def step_s(precision: str, batch_size: int) -> float:
    share = SHARE[precision] * batch_size / (batch_size + 4)
    return run_fixture.EXACT_FLOP["resnet18"] * batch_size / (share * SHEET[precision])


def flags(precision: str) -> dict[str, Any]:
    float32 = "ieee" if precision == "fp32" else "tf32"
    names = ("cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision")
    return dict.fromkeys(names, float32) | {
        "float32_matmul_precision": "highest" if precision == "fp32" else "high",
        "cuda.matmul.allow_fp16_accumulation": False,
        "cudnn.enabled": True,
        "cudnn.benchmark": True,
        "cudnn.deterministic": False,
        "deterministic_algorithms": False,
    }


def table(batch_size: int, precision: str) -> list[Operation]:
    """The eight calls of a step, with their storages, dtypes and links."""
    dtype = "bfloat16" if precision == "amp-bf16" else "float32"
    calls = run_fixture.operations("resnet18", batch_size, "fp32")[:8]
    return [
        replace(
            call,
            reads=_READS[i],
            writes=_WRITES[i],
            input_dtypes=(dtype,) * len(call.input_names),
            output_dtypes=(dtype,) * len(call.output_shapes),
        )
        for i, call in enumerate(calls)
    ]


def samples(run: Run, step: float) -> list[Sample]:
    """Blocks ± 0.1 % about the mean, one after the other, whose host time is a hair more than the device's."""
    found, start_s = [], 100.0
    for index in range(BLOCKS):
        device_s = STEPS * step * (1.001 if index % 2 else 0.999)
        found.append(
            Sample(
                cell_id=run.cell_id,
                attempt=1,
                index=index,
                part="measure",
                steps=STEPS,
                start_s=start_s,
                wall_s=device_s * 1.0005,
                device_s=device_s,
                sync_wait_s=device_s / (10 + run.batch_size + run.repeat),
            )
        )
        start_s += device_s * 1.001
    return found


def telemetry(run: Run, end_s: float) -> list[Telemetry]:
    """Polls every 0.25 s from before to after the window, at one clock and one power, with the counter in step."""
    reasons = ("sw_power_cap",) if run.precision == "amp-bf16" else ()
    return [
        Telemetry(
            cell_id=run.cell_id,
            attempt=1,
            time_s=99.0 + i / 4,
            sm_clock_hz=CLOCK_HZ,
            power_w=POWER_W,
            energy_j=5000.0 + POWER_W * i / 4,
            event_reasons=reasons,
            memory_clock_hz=3_201_000_000,
            temperature_c=61.0,
            memory_used_bytes=5_000_000_000,
        )
        for i in range(int((end_s - 98.0) * 4) + 2)
    ]


def _part(precision: str, batch_size: int, repeat: int) -> Part:
    profiled = (precision, batch_size, repeat) == PROFILED
    methods = ("theory", "batch", "exact") if profiled else ("theory", "exact")
    cell = Cell(
        model="resnet50",
        batch_size=batch_size,
        device="cuda",
        precision=precision,
        num_classes=CLASSES,
        repeat=repeat,
        methods=methods,
    )
    operations = table(batch_size, precision)
    run = Run(
        **vars(cell),
        cell_id=cell.cell_id,
        attempt=1,
        session="s1",
        status="ok",
        items_per_step=batch_size,
        convolution_unit=UNIT[precision],
        matmul_unit=UNIT[precision],
        flags_before=flags(precision),
        flags_after=flags(precision),
        executed=dict(facts_of(operations, ()).executed),
        parameters=PARAMETERS["resnet50"],
        first_loss=2.4,
        last_loss=2.3,
        others_cpu_ratio=0.01,
        host_bound=False,
        interval_rule=LAG1_RAISED,
        profiled=("batch",) if profiled else (),
        **MEMORY_BYTES,
    )
    blocks = samples(run, step_s(precision, batch_size))
    end_s = blocks[-1].start_s + blocks[-1].wall_s
    window = {"window_start_s": 100.0, "window_end_s": end_s, "energy_method": "counter"}
    run = replace(run, energy_j=POWER_W * (end_s - 100.0), **window)
    calls = made_up_device.nested(run_fixture.profiled_operations("batch", precision)) if profiled else []
    # what two counters say at batches of 1, 2 and the cell's own, each number in FLOP as well
    rows = []
    for size in sorted({1, 2, run.batch_size}):
        mine = run_fixture.flop_counts(replace(run.cell, batch_size=size, model="resnet18"))
        for counter in dict.fromkeys(row.counter for row in mine):
            flop = sum(row.flop or 0 for row in mine if row.counter == counter and row.operator)
            facts = {"flop": flop, "parameters": PARAMETERS["resnet50"], "duration_s": 0.2, "peak_memory_bytes": 10**9}
            totals = [row.counter == counter and not row.operator for row in mine]
            mine = [replace(row, **facts) if total else row for row, total in zip(mine, totals, strict=True)]
        rows += [replace(row, workload="resnet50", cell_id=run.cell_id) for row in mine]
    return Part(run, blocks, telemetry(run, end_s), rows, operations, profile=calls)


def storages_of(operations: list[Operation], model: str = "resnet50") -> list[Storage]:
    """The storages of a table, as large as its shapes say, and the rest of the model's weights."""
    held = made_up_device.storages(operations, WEIGHTS, GIVEN)
    rest = WEIGHT_BYTES * PARAMETERS[model] - sum(each.nbytes for each in held if each.role == "weight")
    return [*held, Storage(UNREAD, rest, "weight", -1, None)]
