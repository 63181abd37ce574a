"""A workload from parts that a person wrote: an object or a mapping with build, batch and loss, checked part by part.

What lacks a part gets one line that names it. Whether the parts go together is seen when they are run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from workloads.catalogue.base import Workload

PARTS = {
    "build": "build(**hyper) → torch.nn.Module",
    "batch": "batch(hyper, size, device, generator) → Batch",
    "loss": "loss(output, target) → scalar",
}
"""What every workload has: name → how it is called."""

OTHERS = ("items", "optimizer")
"""Functions that it may have."""


def workload_of(text: str, made: Any) -> Workload | None:
    """The workload of what a person's function returned; None if it has none of the parts.

    Parts are attributes or, of a mapping, entries; hyper, items, item, task, source and optimizer may be left out.
    Raises ValueError, one line, for a part that is missing or is no function.
    """
    found = _parts(made)
    if not any(name in found for name in PARTS):
        return None
    if missing := [name for name in PARTS if name not in found]:
        has = " and ".join(name for name in PARTS if name in found)
        lacks = "; ".join(PARTS[name] for name in missing)
        raise ValueError(f"{text} has {has}, but is no workload: it lacks {lacks}")
    for name in (*PARTS, *OTHERS):
        if name in found and not callable(found[name]):
            raise ValueError(
                f"{text}: expected {PARTS.get(name, name)}, a function; got a {type(found[name]).__name__}"
            )
    return Workload(
        name=text,
        task=str(found.get("task", "general")),
        hyper=_sizes(text, found.get("hyper", {})),
        build=found["build"],
        batch=found["batch"],
        loss=found["loss"],
        items=found.get("items", lambda _hyper, size: size),
        item=str(found.get("item", "sample")),
        source=str(found.get("source", text)),
        optimizer=found.get("optimizer"),
    )


def _parts(made: Any) -> dict[str, Any]:
    """What it has of a workload's parts. A module has methods of its own names, and is none."""
    if isinstance(made, (torch.nn.Module, torch.Tensor)):
        return {}
    names = (*PARTS, *OTHERS, "hyper", "task", "item", "source")
    if isinstance(made, Mapping):
        return {name: made[name] for name in names if name in made}
    return {name: getattr(made, name) for name in names if hasattr(made, name)}


def _sizes(text: str, hyper: Any) -> dict[str, int]:
    if not isinstance(hyper, Mapping) or not all(type(size) is int for size in hyper.values()):
        raise ValueError(f"{text}: expected hyper, a mapping of names to whole numbers; got {hyper!r}")
    return dict(hyper)
