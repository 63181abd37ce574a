"""The server that forks the children of tests: it imports, besides what the product has it import, what most children
would each import by themselves.

The children do what they do elsewhere, with modules that are there already; the product's own list is used by every
test that starts a command as a process of its own. Claims nothing about what a child imports: modules that patch torch
or take seconds stay with those that need them.
"""

from collections.abc import Iterable
from multiprocessing import forkserver

MODULES = (
    "measure.counters.isolation",
    "measure.counters.model_calls",
    "measure.counters.adapters.dispatched",
    "fvcore.nn",
    "measure.counters.adapters.ptflops",
    "measure.operations.model_trace",
    "measure.timing.profiler_ranges",
    "runners.sweep.cell",
    "runners.workers.any_model",
    "runners.workers.pool",
    "workloads.any_model",
    "workloads.synthetic",
    "workloads.step",
    "timm",
)
"""Ours, and two counters that import little."""

_honest = forkserver.set_forkserver_preload


def preload(modules: Iterable[str]) -> None:
    """`set_forkserver_preload` of what the product asks for, first of all, and of MODULES."""
    _honest([*modules, *MODULES])


def install() -> None:
    """Before a server runs."""
    forkserver.set_forkserver_preload = preload
