"""Gates of names: ids that fit their rows, cells that were asked for, machines that are what they call themselves."""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.devices import peaks
from analysis.parallel import parse_plan
from cleaning.facts import date_fault
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import RUN, Finding
from results.records import MEASURED, Cell, Run, Sitting

SINGLE = (
    "device",
    "layout",
    "compile",
    "optimizer",
    "image_size",
    "num_classes",
    "hyper",
    "data",
    "cudnn_benchmark",
    "deterministic",
    "target_ci_ratio",
    "quick",
    "seed",
    "input_pipeline",
    "profile",
    "inputs",
    "batch_maker",
    "frozen",
    "checkpoint",
    "paired_ceiling",
    "malloc",
)
"""Parameters of which a sweep has one value for all of its cells."""

BOOST = (0.9, 1.4)
"""Least and most that a device's highest clock may be of the boost clock in its sheet; board partners go beyond it."""

CLOCKS_APART = 0.05


def cell_id(evidence: Evidence) -> Iterator[Finding]:
    """The id of each row worked out again from its parameters; the tables of a trace are of one row's sizes."""
    for run in evidence.data.runs:
        expected = run.cell.cell_id
        words = f"its parameters (model {run.model}, batch {run.batch_size}, …) give {expected}"
        yield Finding(run.cell_id, run.cell_id == expected, "" if run.cell_id == expected else words)


def grid_coverage(evidence: Evidence) -> Iterator[Finding]:
    """Each cell against the grids of the manifest, and each point of those against the cells that are there."""
    grids = _grids(evidence.data.manifest.options)
    if not grids:
        return
    for run in evidence.data.runs:
        differing = min((_differing(run, grid) for grid in grids), key=len)
        words = ", ".join(f"{name} is {getattr(run, name)!r}" for name in differing)
        yield Finding(run.cell_id, not differing, f"not asked for: {words}" if differing else "")
    runs = evidence.data.all_runs
    there = {
        (run.model, run.batch_size, run.precision, run.repeat, run.layout, run.malloc, run.parallel) for run in runs
    }
    for grid in grids:
        missing = [point for point in _points(grid) if point not in there]
        words = ", ".join(f"{model} b{size} {name} #{repeat + 1}" for model, size, name, repeat, *_ in missing[:3])
        yield Finding(RUN, not missing, f"asked for and not there: {words}, {len(missing)} in all" if missing else "")


def _grids(options: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The options of each sweep into this run, those that say what a cell is."""
    earlier = options.get("earlier")
    every = [options, *(earlier if isinstance(earlier, list) else ())]
    return [each for each in every if isinstance(each, Mapping) and each.get("models")]


def _differing(run: Run, grid: Mapping[str, Any]) -> list[str]:
    """Names of the parameters that this sweep did not ask for."""
    default = Cell(model="", batch_size=1, device="")  # what an option that is not there means
    wrong = [name for name in SINGLE if grid.get(name, _plain(getattr(default, name))) != _plain(getattr(run, name))]
    many = {"model": "models", "precision": "precisions", "batch_size": "batch_sizes"}
    for name, option in many.items():
        offered = _batches(run, grid) if name == "batch_size" else grid.get(option)
        its_own = name == "batch_size" and offered == [] and "batch_sizes" in grid
        wrong += [name] if not its_own and getattr(run, name) not in (offered or ()) else []
    wrong += ["parallel"] if run.parallel not in _plans(grid) else []
    kept = grid.get("digests")
    digests = kept if isinstance(kept, Mapping) else {}
    wrong += ["model_digest"] if run.model_digest != digests.get(run.model, "") else []
    times = grid.get("repeat", 1)
    wrong += ["repeat"] if isinstance(times, int) and not run.repeat < times else []
    wrong += ["methods"] if sorted(run.methods) != sorted(grid.get("methods") or ()) else []
    counters = grid.get("counters", ()) if "theory" in run.methods else ()
    wrong += ["counters"] if sorted(run.counters) != sorted(counters or ()) else []
    images = grid.get("epoch_images") if "epoch" in run.methods else Cell.epoch_images
    return wrong + (["epoch_images"] if images is not None and run.epoch_images != images else [])


def _batches(run: Run, grid: Mapping[str, Any]) -> Sequence[int]:
    """Batch sizes that were asked for; none where they were looked for, or are the model's own."""
    steps = grid["auto"].get("steps", {}) if isinstance(grid.get("auto"), Mapping) else {}
    found = steps.get(f"{run.model} {run.precision}", {}) if isinstance(steps, Mapping) else {}
    if isinstance(found, Mapping) and found:
        batches: Sequence[int] = found.get("batches", ())
        return batches
    return [size * _replicas(grid, run.parallel) for size in grid.get("batch_sizes") or ()]


def _plans(grid: Mapping[str, Any]) -> Sequence[str]:
    """How steps were to be split over ranks; of one device alone: not at all."""
    plans = grid.get("parallel")
    return plans if isinstance(plans, list) and plans else [""]


def _replicas(grid: Mapping[str, Any], plan: str) -> int:
    """How many batches of a sweep's sizes a step has: one, or with weak scaling one for each replica of its plan."""
    try:
        return parse_plan(plan).dp if plan and grid.get("scaling") == "weak" else 1
    except ValueError:
        return 1


def _points(grid: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    if grid.get("auto"):
        return
    for repeat in range(grid.get("repeat") or 1):
        for model in grid["models"]:
            for size in grid.get("batch_sizes") or ():
                for precision in grid.get("precisions") or ():
                    for plan in _plans(grid):
                        whole = size * _replicas(grid, plan)
                        single = grid.get("layout", Cell.layout), grid.get("malloc", Cell.malloc)
                        yield model, whole, precision, repeat, *single, plan


def _plain(value: Any) -> Any:
    """As a manifest, which is JSON, has it."""
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def peak_row(evidence: Evidence) -> Iterator[Finding]:
    """The row of peaks that session and manifest name against the one of the device's own name."""
    kept = evidence.data.manifest.peak_row
    for sitting in _used(evidence):
        words = "; ".join(_peak_row(sitting, kept, evidence))
        yield Finding(RUN, not words, f"{sitting.sitting}: {words}" if words else "")


def _peak_row(sitting: Sitting, kept: Mapping[str, Any] | None, evidence: Evidence) -> Iterator[str]:
    known = peaks.lookup(sitting.device_name, _count(sitting)) if not sitting.device.startswith("cpu") else None
    used = [row.peak_flop_per_s for row in evidence.published if row.denominator in ("datasheet", "clock")]
    if known is None:
        if sitting.peak_row or kept is not None:
            yield f"{sitting.device_name!r} has no peak, a row of peaks is named"
        if any(value is not None for value in used):
            yield f"{sitting.device_name!r} has no peak, and one was divided by"
        return
    if kept is None:
        yield f"no row of peaks is kept, {known.name} has one"
        return
    if sitting.peak_row != kept.get("row_id"):
        yield f"row {sitting.peak_row or 'none'}, in the manifest {kept.get('row_id')}"
    later = [unit for unit in peaks.SMALL_UNITS if unit not in kept.get("peaks", {})]  # no run divides by them
    figures = {unit: figure for unit, figure in known.peaks.items() if unit not in later}
    expected = {"name": known.name, "peaks": figures, "bandwidth_bytes_per_s": known.bandwidth_bytes_per_s}
    if kept.get("row_id") == known.row_id:  # else a table of another day, whose figures must be the same
        expected |= {"source": known.source, "verification": known.verification}
    for name, value in expected.items():
        if kept.get(name) != value:
            yield f"{name} is {kept.get(name)!r}, of {known.name} {value!r}"


def _count(sitting: Sitting) -> int | None:
    count = sitting.environment.get("multiprocessors")
    return count if isinstance(count, int) else None


def _used(evidence: Evidence) -> list[Sitting]:
    names = {run.sitting for run in evidence.data.runs}
    return [sitting for sitting in evidence.data.sittings if sitting.sitting in names]


def machine(evidence: Evidence) -> Iterator[Finding]:
    """What a session says of its machine in several places, and what cells and ceilings say of their session."""
    sittings = {sitting.sitting: sitting for sitting in evidence.data.sittings}
    for sitting in _used(evidence):
        words = "; ".join(_machine(sitting))
        yield Finding(RUN, not words, f"{sitting.sitting}: {words}" if words else "")
    lasted = dict(_overlapping(evidence.data.runs))
    for run in evidence.data.runs:
        home = sittings.get(run.sitting)
        words = "" if home is not None else f"its session {run.sitting!r} is not there"
        if home is not None and run.device != home.device:
            words = f"on {run.device}, its session on {home.device}"
        if home is not None and run.started_at and home.started_at and run.started_at < home.started_at:
            words = f"began at {run.started_at}, its session at {home.started_at}"
        words = words or lasted.get(run.cell_id, "") or _threads(run, home)
        yield Finding(run.cell_id, not words, words)
    faults = list(dict.fromkeys(_of_ceilings(evidence, sittings)))
    yield Finding(RUN, not faults, "; ".join(faults[:3]))
    yield from _manifest(evidence)


def _threads(run: Run, home: Sitting | None) -> str:
    """Where a cell's own threads are not those of its session."""
    facts = home.environment if home is not None else {}
    for flag, fact in (("num_threads", "torch_threads"), ("num_interop_threads", "torch_interop_threads")):
        own, other = run.flags_before.get(flag), facts.get(fact)
        if own is not None and other is not None and own != other:
            return f"{flag} {own}, in its session {other}"
    return ""


def _overlapping(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """(cell id, words) of measured cells that say no time, or one that reaches into the next cell's."""
    for run in runs:
        if run.duration_s is None and run.status in MEASURED:
            yield run.cell_id, "nothing is said of how long it took"
    timed = [run for run in runs if run.duration_s is not None and not date_fault("", run.started_at)]
    ordered = sorted(timed, key=lambda run: (run.sitting, run.started_at))
    for run, after in itertools.pairwise(ordered):
        length_s = (_seconds(after.started_at) - _seconds(run.started_at)).total_seconds()
        clocks = run.window_start_s, after.window_start_s
        if run.sitting == after.sitting and None not in clocks and clocks[0] > clocks[1]:  # type: ignore[operator]
            yield run.cell_id, f"began before cell {after.cell_id}, and was timed after it"
        if run.sitting == after.sitting and (run.duration_s or 0.0) > length_s + SECOND:
            yield run.cell_id, f"took {run.duration_s:.4g} s, the next cell began {length_s:.4g} s after it"


def _seconds(date: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(date.removesuffix("Z"))


SECOND = 1.5
"""Times in words are whole seconds."""


def _of_ceilings(evidence: Evidence, sittings: Mapping[str, Sitting]) -> Iterator[str]:
    precisions = {run.precision for run in evidence.data.all_runs}
    for row in evidence.data.ceilings:
        home = sittings.get(row.sitting)
        if home is None:
            yield f"a ceiling of session {row.sitting!r}, which is not there"
            continue
        threads = home.environment.get("torch_threads")
        if row.precision not in precisions:
            yield f"a ceiling of {row.precision}, which no cell has"
        pairs: list[tuple[str, Any, Any]] = [
            ("device", row.device, home.device),
            ("device_name", row.device_name, home.device_name),
        ]
        pairs += [("threads", row.threads, threads)] if threads is not None else []
        yield from (
            f"a ceiling's {name} is {own!r}, of its session {other!r}"
            for name, own, other in pairs
            if own != other and (name == "device" or own not in ("", None))
        )


HOST = (
    "python", "os", "kernel", "machine", "container", "cpu", "cpu_logical", "cpu_physical", "cpu_usable", "cpu_quota",
    "cpu_isa", "host_memory_bytes", "governor", "load_1min", "driver", "variables",
)  # fmt: skip
SOFTWARE = (
    "torch", "torchvision", "triton", "nvtx", "nvidia_ml_py", "fvcore", "ptflops", "numpy", "cuda", "hip", "cudnn",
    "cuda_available", "cuda_devices", "torch_threads", "torch_interop_threads", "torch_cpu_capability", "mkldnn",
    "torch_error",
)  # fmt: skip
DEVICE = (
    "device", "name", "compute_capability", "multiprocessors", "memory_bytes", "l2_bytes", "clock_hz",
    "memory_clock_hz", "memory_bus_bits", "uuid_hash", "physical_cores", "logical_cores", "isa", "threads", "error",
)  # fmt: skip
ENVIRONMENT = (*HOST, *SOFTWARE, *DEVICE, "harness_version")
"""What every session says of its machine, if only that nothing is known (null)."""

PREFLIGHT = {
    "cuda": ("other_processes", "sm_clock_max_hz", "power_limit_w"),
    "cpu": ("cpu_usable", "governor", "load_1min"),
}
"""What a session says of its device before the first cell."""


TWICE = {
    "cpu_logical": "logical_cores",
    "cpu_physical": "physical_cores",
    "threads": "torch_threads",
    "cpu_isa": "isa",
    "cpu": "name",
    "host_memory_bytes": "memory_bytes",
}
"""Facts that an environment has under two names, where the device is its processor."""


def _machine(sitting: Sitting) -> Iterator[str]:
    facts = sitting.environment
    on_cuda = not sitting.device.startswith("cpu")
    missing = [name for name in ENVIRONMENT if name not in facts]
    if missing := missing + [name for name in PREFLIGHT["cuda" if on_cuda else "cpu"] if name not in sitting.preflight]:
        yield f"nothing is said of {', '.join(missing)}"
    pairs = {"name": sitting.device_name, "torch": sitting.torch_version, "driver": sitting.driver}
    pairs |= {"device": sitting.device, "uuid_hash": sitting.device_uuid}
    for name, own in pairs.items():
        if facts.get(name) is not None and str(facts[name]) != own:
            yield f"{name} {own!r}, by its environment {facts[name]!r}"
    yield from _only_facts(sitting)
    if isinstance(count := facts.get("cuda_devices"), int) and facts.get("cuda_available") is not (count > 0):
        yield f"{count} CUDA devices, cuda_available is {facts.get('cuda_available')}"
    for one, other in () if on_cuda else TWICE.items():
        if facts.get(one) is not None and facts.get(other) is not None and facts[one] != facts[other]:
            yield f"{one} {facts[one]!r}, {other} {facts[other]!r}"
    usable = sitting.preflight.get("cpu_usable")
    if usable is not None and facts.get("cpu_usable") not in (None, usable):
        yield f"{usable} usable processors, {facts['cpu_usable']} by its environment"
    yield from _loads(sitting)
    known = peaks.lookup(sitting.device_name) if on_cuda else None
    if known is None:
        return
    capability, clock_hz = facts.get("compute_capability"), facts.get("clock_hz")
    highest_hz = sitting.preflight.get("sm_clock_max_hz")
    if capability is not None and capability != known.compute_capability:
        yield f"compute capability {capability}, of {known.name} {known.compute_capability}"
    if _count(sitting) is not None and peaks.lookup(sitting.device_name, _count(sitting)) is None:
        yield f"{_count(sitting)} multiprocessors, {known.name} has {known.multiprocessors}"
    for name, value in (("clock_hz", clock_hz), ("sm_clock_max_hz", highest_hz)):
        if isinstance(value, (int, float)) and known.boost_hz and not BOOST[0] <= value / known.boost_hz <= BOOST[1]:
            yield f"{name} {value / 1e6:.0f} MHz, the sheet's boost is {known.boost_hz / 1e6:.0f}"
    if not isinstance(clock_hz, (int, float)) or not isinstance(highest_hz, (int, float)):
        return
    if not math.isclose(clock_hz, highest_hz, rel_tol=CLOCKS_APART):
        yield f"the highest clock is {clock_hz / 1e6:.0f} MHz by torch and {highest_hz / 1e6:.0f} by NVML"


LOADS_APART, LOADS_RATIO = 0.5, 1.5
"""By how much the load may change between two readings at the begin of a session, seconds apart, which are means over a
minute: both must be exceeded."""


def _loads(sitting: Sitting) -> Iterator[str]:
    one, other = sitting.environment.get("load_1min"), sitting.preflight.get("load_1min")
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
        return
    low, high = sorted((one, other))
    if high - low > LOADS_APART and high > LOADS_RATIO * low:
        yield f"a load of {other:.2f}, by its environment {one:.2f}"


_CUDA_BUILD = re.compile(r"\+cu(\d+)(\d)$")
"""The end of torch's version in a build for CUDA: 2.11.0+cu130 is one for 13.0."""


def _only_facts(sitting: Sitting) -> Iterator[str]:
    """What cannot be of any machine: no host's name, an amount below 0, another CUDA than torch was built for."""
    if not sitting.host:
        yield "nothing is said of its host"
    for name, value in (*sitting.environment.items(), *sitting.preflight.items()):
        if isinstance(value, (int, float)) and value < 0:
            yield f"{name} {value:g}"
    build = _CUDA_BUILD.search(sitting.torch_version)
    cuda = sitting.environment.get("cuda")
    if build is not None and cuda is not None and cuda != ".".join(build.groups()):
        yield f"CUDA {cuda}, torch {sitting.torch_version} is built for {'.'.join(build.groups())}"


def _manifest(evidence: Evidence) -> Iterator[Finding]:
    manifest, sittings = evidence.data.manifest, evidence.data.sittings
    if not sittings:
        return
    first, words = sittings[0], []
    version = first.environment.get("harness_version")
    if version and manifest.harness_version and version != manifest.harness_version:
        words.append(f"manifest of {manifest.harness_version}, its first session of {version}")
    words += filter(None, (date_fault("created_at", manifest.created_at),))
    words += ["no command"] if not manifest.commands else []
    words += ["no name"] if not manifest.name else []
    words += ["no version"] if not manifest.harness_version else []
    if manifest.created_at and first.started_at and first.started_at < manifest.created_at:
        words.append(f"made at {manifest.created_at}, its first session began at {first.started_at}")
    yield Finding(RUN, not words, "; ".join(words))
