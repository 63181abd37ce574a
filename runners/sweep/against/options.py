"""Whether a sweep compares two sides, and what does not go with that: known before a device is asked."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.records import WORKS

SIDES = ("old", "new")
"""Run directories of A and B."""


def is_asked(options: argparse.Namespace, stored: Mapping[str, Any]) -> bool:
    """Whether two sides are compared: asked for here, or by the run that goes on."""
    return options.against is not None or options.against_options is not None or "against" in stored


def new_side(resumed: Path | None) -> Path | None:
    """The run that a session goes on with; of a directory of two sides the new one's."""
    if resumed is not None and not (resumed / "manifest.json").is_file():
        new = resumed / SIDES[1]
        return new if (new / "manifest.json").is_file() else resumed
    return resumed


def check_options(options: argparse.Namespace, stored: Mapping[str, Any]) -> None:
    """Raises ValueError for what does not go with --against, before anything is asked of a device."""
    if not is_asked(options, stored):
        for name in ("slower", "alarm"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name}: expected --against DIR or --against-options beside it")
        return
    if "against" in stored and (options.against is not None or options.against_options is not None):
        raise ValueError("--resume: a comparison goes on as it was asked for; leave out --against and its options")
    given = {
        "--what-if": options.what_if,
        "--profile": options.profile,
        "--repeat": (options.repeat or 1) > 1,
        "--batch-sizes auto": options.batch_sizes == (),
        "--methods with one, batch or epoch": set(options.methods or ()) & set(WORKS),
    }
    for name, value in given.items():
        if value:
            raise ValueError(f"{name}: not with --against, which times whole steps in pairs of fresh processes")
    if options.against is not None:
        check_root(options.against)


def check_root(root: Path) -> None:
    """Raises ValueError for a directory that is not there."""
    if not root.is_dir():
        raise ValueError(f"--against: expected a directory with the other checkout, got {root}, which is none")
