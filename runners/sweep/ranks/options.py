"""The options of a sweep over several ranks, and what does not go with them. Torch-free."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.parallel.rank_grid import parse_plan
from results.records.vocabulary import WORKS
from runners.sweep.executors.choice import LOCAL
from runners.workers.devices import Place

SCALING = ("strong", "weak")

TORCHRUN = "torchrun --nproc-per-node N -m runners.sweep …"

ALONE = ("compile", "input_pipeline", "paired_ceiling", "profile")
"""Options of a step on one device."""


def add_options(group: Any) -> None:
    """--parallel and --scaling."""
    group.add_argument(
        "--parallel",
        nargs="+",
        type=_plan,
        metavar="PLAN",
        help=f"under {TORCHRUN}: ddp=2, fsdp=4, …, one after another (default: ddp over all ranks; docs/cluster.md)",
    )
    group.add_argument(
        "--scaling",
        choices=SCALING,
        help="of --parallel: whether --batch-sizes are of all ranks together (strong, default) or of each replica",
    )


def _plan(text: str) -> str:
    """A plan as it is kept."""
    try:
        return parse_plan(text).name
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


def check(plans: Sequence[str], values: Mapping[str, Any], place: Place | None) -> None:
    """Raises ValueError for plans that these processes or these options do not go with. values: option → its value."""
    if not plans:
        return
    if place is None:
        raise ValueError(f"--parallel: expected to be started as {TORCHRUN}, got a single process")
    for plan in plans:
        grid = parse_plan(plan)
        if grid.world > place.world:
            raise ValueError(
                f"--parallel: expected plans of at most {place.world} ranks, as torchrun started, got {plan}"
            )
    for name in ALONE:
        value = values.get(name)
        if any(value) if isinstance(value, (list, tuple)) else value:
            raise ValueError(f"--{name.replace('_', '-')}: not with --parallel, which trains on several ranks")
    if values.get("executor", LOCAL) != LOCAL:
        raise ValueError(f"--executor: expected {LOCAL} with --parallel, got {values['executor']}")
    if (values.get("data") or "synthetic") != "synthetic":
        raise ValueError(f"--data: expected synthetic with --parallel, got {values['data']}")
    recording = [method for method in values.get("methods") or () if method in WORKS]
    if recording:
        raise ValueError(f"--methods: expected theory or exact with --parallel, got {','.join(recording)}")
    if values.get("batch_sizes") == ():
        raise ValueError("--batch-sizes: expected sizes with --parallel, got auto")
    if (device := str(values.get("device", "auto"))) not in ("auto", "cpu", "cuda"):
        raise ValueError(f"--device: expected auto, cpu or cuda with --parallel: each rank has its own; got {device}")
