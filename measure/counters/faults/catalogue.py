"""The faults that are known, by counter: a literal table of files, each with its own literal table `FAULTS`.

No counter is imported here, nor when a file of faults is; the functions that show a fault import what they call.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata

from measure.counters.faults.fault import Fault


@dataclass(frozen=True)
class Counter:
    """One counter. title: its name in prose; package: the distribution that brings it; imports: its module; unit: what
    one of its numbers is; origin: where its threads are, with {} for the number."""

    title: str
    package: str
    imports: str
    unit: str
    origin: str


PYTORCH = "https://github.com/pytorch/pytorch/issues/{}"
PTFLOPS = "https://github.com/sovrasov/flops-counter.pytorch/issues/{}"

COUNTERS = {
    "flop_counter_mode": Counter("PyTorch FlopCounterMode", "torch", "torch.utils.flop_counter", "FLOP", PYTORCH),
    "torch_profiler": Counter("torch.profiler, with_flops", "torch", "torch.profiler", "FLOP", PYTORCH),
    "fvcore": Counter(
        "fvcore", "fvcore", "fvcore.nn", "multiply-adds", "https://github.com/facebookresearch/fvcore/issues/{}"
    ),
    "ptflops": Counter("ptflops, pytorch", "ptflops", "ptflops", "multiply-adds a sample", PTFLOPS),
    "ptflops_aten": Counter("ptflops, aten", "ptflops", "ptflops", "multiply-adds", PTFLOPS),
    "pthflops": Counter(
        "pthflops",
        "pthflops",
        "pthflops",
        "multiply-adds",
        "https://github.com/1adrianb/pytorch-estimate-flops/issues/{}",
    ),
    "deepspeed": Counter(
        "DeepSpeed's profiler",
        "deepspeed",
        "deepspeed.profiling.flops_profiler",
        "FLOP and multiply-adds",
        "https://github.com/deepspeedai/DeepSpeed/issues/{}",
    ),
    "calflops": Counter(
        "calflops",
        "calflops",
        "calflops",
        "FLOP and multiply-adds",
        "https://github.com/MrYxJ/calculate-flops.pytorch/issues/{}",
    ),
    "thop": Counter("thop", "thop", "thop", "multiply-adds", "https://github.com/ultralytics/thop/issues/{}"),
    "torchinfo": Counter(
        "torchinfo", "torchinfo", "torchinfo", "multiply-adds", "https://github.com/TylerYep/torchinfo/issues/{}"
    ),
}
"""The names are those of `measure/counters/registry.py`."""


def faults_of(counter: str) -> tuple[Fault, ...]:
    """The faults of one counter, in the order of its file. Needs torch, not the counter."""
    module = importlib.import_module(f"measure.counters.faults.{counter}")
    return tuple(module.FAULTS)


def installed(counter: str) -> str:
    """The version of the counter's package; "" if it is not installed."""
    try:
        return metadata.version(COUNTERS[counter].package)
    except metadata.PackageNotFoundError:
        return ""
