"""The settings of a profile from a JSON file, by the names that DeepSpeed's users know ("flops_profiler").

The file is a DeepSpeed configuration, or the section alone. The tutorial's `start_step` and `end_step`, which newer
DeepSpeed ignores in silence, are read: the steps before the first are run to warm up, those between are profiled. What
the command line says comes first. Raises Mistake for anything that cannot be.
"""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from results.text_files import json_value, read_text
from runners.cli.arguments import choice_error
from runners.cli.exits import Mistake

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
