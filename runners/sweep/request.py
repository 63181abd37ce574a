"""Checks the options of a sweep and of the run that it resumes, and turns them into grids (`grids_of`).

`grids_of` takes parsed options (`options.py`), the options of the resumed run and the probed device. It returns
`Grid`s: lists of models, batch sizes and precisions, from which `plan.py` makes cells. Values of the command line
override those of the resumed run. Values of the resumed run override the defaults of the suite and the device. Names
are checked here. Nothing slow is imported, and no device is used.
"""

import argparse
import dataclasses
import importlib.util
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analysis.counters import COUNTERS
from analysis.devices.precisions import PRECISIONS
from analysis.parallel.rank_grid import parse_plan
from results.records.cell import MALLOC_SETTINGS, PASSES, RETAIN, Cell, Parameters
from runners.cli.exits import as_mistake
from runners.sweep.options import AUTO, FED, LOCAL, OWN_SIZES, RAY, RUNS, TORCHRUN
from runners.sweep.plan import METHODS, Grid, cells, check_model, digests, raise_for
from runners.workers.devices import ProbeResult, RankProcess, check_name, rank_process
from workloads.catalogue.catalogue import ENTRIES, OWN, hyper_of
from workloads.catalogue.suites import SUITES

DEFAULT_MODELS = ("resnet18", "mobilenet_v2")
DEFAULT_BATCHES = {"cpu": (8,), "cuda": (64,)}
DEFAULT_PRECISIONS = {"cpu": ("fp32",), "cuda": ("fp32", "tf32", "amp-bf16")}

RAY_PACKAGE = "ray>=2.49,<3"
"""The package to install for RAY."""

ONE_DEVICE = ("compile", "paired_ceiling", "profile")
"""Options that only a step on one device can have."""

MALLOC = "FLOPLEDGER_MALLOC"
"""Environment variable. With `default`, memory that cells on a CPU free goes back to the system."""

EARLIER = "earlier"
"""Key, in a manifest's options, of the other grids that the run was resumed from."""


def check_options(options: argparse.Namespace, stored: dict[str, Any]) -> None:
    """Check what can be checked without a device. Raises ValueError."""
    from workloads.catalogue.model_names import directory_of

    for model in _models(options, stored):
        with as_mistake(ValueError, about="--models: "):
            check_model(model, *(str(chosen(options, stored, name, "")) for name in FED))
        if model not in ENTRIES:
            continue
        own = {name: chosen(options, stored, name, None) for name in OWN_SIZES}
        with as_mistake(ValueError, about="--size: "):
            hyper_of(model, **own, **dict(chosen(options, stored, "hyper", {})))
    _malloc_of_cpu()
    directory_of(str(chosen(options, stored, "data", "synthetic")))
    methods = chosen(options, stored, "methods", Grid.methods)
    wanted, came = [method for method in METHODS if method in PASSES], ",".join(methods)
    recorded = f"--profile: expected --methods with {' or '.join(wanted)} beside it, got {came}, which record nothing"
    raise_for(
        {
            recorded: chosen(options, stored, "profile", "") and not set(wanted) & set(methods),
            f"--epoch-images: expected --methods with epoch beside it, got {came}": options.epoch_images is not None
            and "epoch" not in methods,
        }
    )
    check_name(str(chosen(options, stored, "device", "auto")))
    names = (*ONE_DEVICE, "data", "methods", "batch_sizes")
    values = {name: chosen(options, stored, name, None) for name in names} | {"device": options.device or "auto"}
    values |= {"executor": options.executor}
    plans = tuple(chosen(options, stored, "parallel", ()))
    check_ranks(plans, values, rank_process(os.environ))


def check_executor(options: argparse.Namespace) -> None:
    """Check what can be checked without a cluster. Raises ValueError, one line, where Ray is not installed, or an
    option cannot be combined with the executor."""
    on_ray, is_absent = options.executor == RAY, importlib.util.find_spec("ray") is None
    some_device = options.device in (None, "auto", "cpu", "cuda")
    raise_for(
        {
            f"--accelerator: expected --executor {RAY} beside it, got --executor {LOCAL}": not on_ray
            and options.accelerator,
            f"--profile: expected kineto with --executor {RAY}, got nsys": on_ray and options.profile == "nsys",
            f"--device: expected auto, cpu or cuda with --executor {RAY}, got {options.device}": on_ray
            and not some_device,
            f"--executor {RAY}: ray is not installed: python -m pip install '{RAY_PACKAGE}'": on_ray and is_absent,
        }
    )


def check_ranks(plans: Sequence[str], values: Mapping[str, Any], process: RankProcess | None) -> None:
    """Raise ValueError for plans that do not fit these processes or these options. values: option → its value."""
    if not plans:
        return
    if process is None:
        raise ValueError(f"--parallel: expected to be started as {TORCHRUN}, got a single process")
    executor, data = values.get("executor", LOCAL), values.get("data") or "synthetic"
    recording = [method for method in values.get("methods") or () if method in PASSES]
    device = str(values.get("device", "auto"))
    raise_for(
        {
            f"--parallel: expected plans of at most {process.world} ranks, as torchrun started, got {plan}": True
            for plan in plans
            if parse_plan(plan).world > process.world
        }
        | {
            f"--{name.replace('_', '-')}: not with --parallel, which trains on several ranks": True
            for name in ONE_DEVICE
            if values.get(name) not in (None, False, "", (), (False,), [False])
        }
        | {
            f"--executor: expected {LOCAL} with --parallel, got {executor}": executor != LOCAL,
            f"--data: expected synthetic with --parallel, got {data}": data != "synthetic",
            f"--methods: expected theory or exact with --parallel, got {','.join(recording)}": recording,
            "--batch-sizes: expected sizes with --parallel, got auto": values.get("batch_sizes") == (),
            f"--device: expected auto, cpu or cuda with --parallel: each rank has its own; got {device}": device
            not in ("auto", "cpu", "cuda"),
        }
    )


def grids_of(options: argparse.Namespace, stored: dict[str, Any], probed: ProbeResult) -> list[Grid]:
    """Return the requested grids in the order of measuring: one, or one per stage of a suite, without stages in
    precisions that this device does not have. Raises ValueError as `grid_of` does, and for options that stages
    exclude."""
    stages = SUITES[options.suite].stages if options.suite else ()
    if not stages:
        return [grid_of(options, stored, probed)]
    if options.models or _finds_batches(options, stored):
        option = "--models" if options.models else f"--batch-sizes {AUTO}"
        raise ValueError(f"{option}: expected without --suite {options.suite}, whose stages have models and batches")
    usable = [stage for stage in stages if options.precisions or not set(stage["precisions"]) & set(probed.refused)]
    if not usable:
        raise ValueError(f"--suite {options.suite}: expected a device with one of its precisions; name --precisions")
    others = {name: value for name, value in stored.items() if not any(name in stage for stage in stages)}
    return [grid_of(options, others, probed, stage) for stage in usable]


def grid_of(
    options: argparse.Namespace,
    stored: dict[str, Any],
    probed: ProbeResult,
    stage: Mapping[str, Any] = MappingProxyType({}),
) -> Grid:
    """Return the requested grid: values of the command line, else those of the run, else the defaults of the suite's
    stage, of the suite and of the device.

    Raises ValueError for a precision that this device does not have.
    """
    kind = probed.device.partition(":")[0]
    named = chosen(options, stored, "precisions", stage.get("precisions"))
    precisions = named or tuple(name for name in DEFAULT_PRECISIONS[kind] if name not in probed.refused)
    for name in precisions:
        if name in probed.refused:
            usable = ", ".join(p for p in PRECISIONS if p not in probed.refused)
            raise ValueError(f"--precisions: {probed.refused[name]}; expected of {usable}, got {name}")
    suite = SUITES.get(options.suite or "")
    chosen_values = {
        f.name: value for f in dataclasses.fields(Grid) if (value := chosen(options, stored, f.name, None)) is not None
    }
    defaults: dict[str, Any] = {"batch_sizes": DEFAULT_BATCHES[kind]}
    if kind == "cpu" and not stored:
        plans = chosen(options, stored, "parallel", ())
        defaults |= {"malloc": _malloc_of_cpu(), "paired_ceiling": not plans}
    if suite is not None:
        defaults |= {"num_classes": suite.num_classes, "image_size": suite.image_size}
        defaults |= {"counters": tuple(COUNTERS)} if suite.every_counter else {}
        defaults |= {"batch_sizes": (), "optimizer": OWN} if suite.own else {}
    defaults |= stage
    models = stage.get("models") or _models(options, stored)
    own = {
        "models": models,
        "digests": digests(models),
        "precisions": tuple(precisions),
        "device": probed.device,
    }
    grid = Grid.from_json({**defaults, **chosen_values, **own})
    return dataclasses.replace(grid, auto=(grid.auto or {"steps": {}}) if _finds_batches(options, stored) else {})


def _malloc_of_cpu() -> str:
    """Return the allocator's setting of a new run for steps on a CPU. Raises ValueError."""
    retained = RETAIN if platform.libc_ver()[0] == "glibc" else Parameters.malloc
    setting = os.environ.get(MALLOC, "") or retained
    if setting not in MALLOC_SETTINGS:
        raise ValueError(f"{MALLOC}: expected {' or '.join(MALLOC_SETTINGS)}, got {setting!r}")
    return setting


def _finds_batches(options: argparse.Namespace, stored: dict[str, Any]) -> bool:
    """Return whether batch sizes that fit are searched: requested here, or in the run that is resumed."""
    return options.batch_sizes == () or (options.batch_sizes is None and bool(stored.get("auto")))


def _models(options: argparse.Namespace, stored: dict[str, Any]) -> tuple[str, ...]:
    if options.models is None and options.suite is not None:
        return SUITES[options.suite].models
    models = tuple(chosen(options, stored, "models", DEFAULT_MODELS))
    return (*SUITES[options.suite].models, *models) if options.suite else models


def chosen(options: argparse.Namespace, stored: dict[str, Any], name: str, default: Any) -> Any:
    """Return an option as given on the command line, else as the resumed run had it, else the default."""
    value = getattr(options, name, None)
    return value if value is not None else stored.get(name, default)


def resumed_run(options: argparse.Namespace) -> Path | None:
    """Return the run to resume; None for a new one. Raises ValueError if it cannot be found."""
    if options.resume is None:
        if options.retry:
            raise ValueError("--retry: expected --resume with it: cells of that run are measured again")
        return None
    if options.resume and options.out not in (None, Path(options.resume)):
        raise ValueError(f"--resume {options.resume} and --out {options.out} name two directories")
    if options.resume or options.out is not None:
        return Path(options.resume or options.out)
    runs = sorted(RUNS.glob("*/manifest.json"), key=lambda file: file.stat().st_mtime)
    if not runs:
        raise ValueError(f"--resume: expected a run in {RUNS}, found none; name its directory")
    return runs[-1].parent


def stored_options(resumed: Path | None) -> dict[str, Any]:
    """Return the options of the resumed run; empty for a new one. Raises ValueError if it is not a run."""
    if resumed is None:
        return {}
    from results.store.manifest import read_manifest

    options = dict(read_manifest(resumed).options)
    if "against" in options or options.get("input_pipeline"):
        what = "one side of an interleaved comparison" if "against" in options else "timed through an input pipeline"
        raise ValueError(f"--resume: {resumed} is {what} of an older version")
    return options


def union(grid: Grid, earlier: Sequence[Grid]) -> list[Cell]:
    """Return the cells of this grid, then those that only earlier sessions of the run requested: none is forgotten."""
    return list({cell.cell_id: cell for planned in (grid, *earlier) for cell in cells(planned)}.values())


def as_options(grid: Grid, earlier: Sequence[Grid]) -> dict[str, Any]:
    """Return a run's options as the manifest keeps them."""
    return {**grid.as_json(), **({EARLIER: [grid_before.as_json() for grid_before in earlier]} if earlier else {})}
