"""What is profiled: settings from a JSON file, by the names that DeepSpeed's users know ("flops_profiler"); the task.

The file is a DeepSpeed configuration, or the section alone. The tutorial's `start_step` and `end_step`, which newer
DeepSpeed ignores in silence, are read: the steps before the first are run to warm up, those between are profiled. What
the command line says comes first. Raises Mistake for anything that cannot be.

`profile` is a task that `pool.Worker` calls by name: picklable in, picklable out, and any exception becomes the
command's line. torch is imported inside, because the parent imports this module, too.
"""

import json
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from results.records.answers import StepProfile
from results.text_files import json_value, read_text
from runners.cli.arguments import choice_error
from runners.cli.exits import Mistake
from runners.cli.model_options import NONE

SECTION = "flops_profiler"

Setting = bool | int | float | str | Path | None
"""The value of one option."""

TYPES: dict[str, type] = {
    "enabled": bool,
    "profile_step": int,
    "start_step": int,
    "end_step": int,
    "module_depth": int,
    "top_modules": int,
    "detailed": bool,
    "output_file": str,
    "recompute_fwd_factor": float,
}
"""Key → what its value is. Every one may also be null: as if it were not there."""

LEAST = {"profile_step": 0, "start_step": 0, "end_step": 1, "module_depth": -1, "top_modules": 1}

DEFAULTS: dict[str, Setting] = {
    "warm_up": 2,
    "steps": 5,
    "module_depth": -1,
    "top_modules": 3,
    "detailed": True,
    "output_file": None,
    "recompute_fwd_factor": 0.0,
}
"""What holds where neither the command line nor a file says anything."""


def merged(options: Namespace) -> Namespace:
    """The options, with what a file says where the command line does not, and defaults elsewhere."""
    found = read(options.config) if options.config is not None else {}
    given = {name: value for name, value in vars(options).items() if value is not None}
    return Namespace(**{**vars(options), **DEFAULTS, **found, **given})


def read(path: Path) -> dict[str, Setting]:
    """Options by our names. `enabled` says nothing here: who runs the command wants a profile."""
    section = _section(path)
    for key, value in section.items():
        if key not in TYPES:
            raise Mistake(f"{path}: {choice_error('key', key, TYPES)}")
        if value is not None and not _fits(key, value):
            raise Mistake(f"{path}: {key}: expected {_wanted(key)}, got {json.dumps(value)}")
    known = {key: value for key, value in section.items() if value is not None}
    found: dict[str, Setting] = {key: known[key] for key in ("module_depth", "top_modules", "detailed") if key in known}
    if known.get("output_file"):
        found["output_file"] = Path(known["output_file"])
    if "recompute_fwd_factor" in known:
        found["recompute_fwd_factor"] = float(known["recompute_fwd_factor"])
    return {**found, **_steps(path, known)}


def _steps(path: Path, known: dict[str, Any]) -> dict[str, int]:
    """Steps to warm up and to profile. DeepSpeed numbers from 0 and profiles one step."""
    start = known.get("start_step", known.get("profile_step"))
    end = known.get("end_step")
    if start is None and end is None:
        return {}
    begin = 1 if start is None else int(start)
    if end is None:
        return {"warm_up": begin} | ({"steps": 1} if "start_step" in known else {})
    if end <= begin:
        raise Mistake(f"{path}: end_step: expected a step after {begin}, with which it begins, got {end}")
    return {"warm_up": begin, "steps": int(end) - begin}


def _section(path: Path) -> dict[str, Any]:
    try:
        whole = json_value(read_text(path))
    except (OSError, ValueError) as fault:
        cause = getattr(fault, "strerror", None) or fault
        raise Mistake(f"--config {path}: expected a JSON file, got {cause}") from fault
    section = whole.get(SECTION, whole) if isinstance(whole, dict) else whole
    if not isinstance(section, dict):
        raise Mistake(f"--config {path}: expected an object with {SECTION}, got {type(section).__name__}")
    if section and TYPES.keys().isdisjoint(section) and section is whole:
        raise Mistake(f"--config {path}: expected a section {SECTION}, got {', '.join(section)}")
    return section


def _fits(key: str, value: Any) -> bool:
    kind = TYPES[key]
    if kind in (int, float) and isinstance(value, bool):
        return False
    number = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
    return number and not (kind in (int, float) and value < LEAST.get(key, 0))


def _wanted(key: str) -> str:
    words = {bool: "true or false", str: "a path", int: "a whole number", float: "a number"}[TYPES[key]]
    return f"{words} of at least {LEAST.get(key, 0)}" if TYPES[key] in (int, float) else words


DETECTION = "detection"


@dataclass(frozen=True)
class ProfileRequest:
    """What is to be profiled. hyper: what the factory takes beside the model. optimizer: "none": gradients alone."""

    model: str
    batch_size: int
    device: str
    precision: str = "fp32"
    mode: str = "train"
    optimizer: str = "sgd"
    layout: str = "channels_first"
    steps: int = 5
    warm_up: int = 2
    compare_steps: int = 4
    ignored: tuple[str, ...] = ()
    hyper: Mapping[str, Any] = field(default_factory=dict)


def profile(request: ProfileRequest) -> StepProfile:
    """Raises ValueError where the model cannot be built or fails, Unavailable where nothing can be recorded."""
    import torch

    from measure.profile.step_profile import profile_step
    from runners.workers.any_model import get, model_and_batch
    from workloads.training.step import optimizer_of

    workload = get(request.model, **request.hyper)
    training = request.mode == "train"
    model, batch = model_and_batch(workload, request.batch_size, torch.device(request.device), request.layout)
    model.train(training)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    steps_it = training and parameters and request.optimizer != NONE
    optimizer = optimizer_of(request.optimizer, workload, parameters) if steps_it else None
    inputs = batch.inputs[:1] if workload.task == DETECTION and not training else batch.inputs
    found = profile_step(
        model,
        inputs,
        target=batch.target,
        loss=workload.loss if batch.target is not None else lambda output: workload.loss(output, None),
        optimizer=optimizer,
        mode=request.mode,
        precision=request.precision,
        warm_up=request.warm_up,
        steps=request.steps,
        compare_steps=request.compare_steps,
        ignore_modules=request.ignored,
        name=request.model,
    )
    return replace(found, batch_size=request.batch_size)  # which sizes of inputs do not say for every model
