"""The faults that are known, by counter: a literal table of files, each with its own literal table `FAULTS`.

No counter is imported here, nor when a file of faults is; the functions that show a fault import what they call.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata

from measure.counters.faults.catalogue.fault import Fault

REPRODUCTIONS = __name__.replace("catalogue.catalogue", "reproductions")
"""The package of the faults, a module each counter."""


@dataclass(frozen=True)
class Counter:
    """One counter. title: its name in prose; package: the distribution that brings it, and the versions that the
    catalogue was tried on; imports: its module; unit: what its numbers are; origin: where its threads are, with {} for
    the number."""

    title: str
    package: str
    tried: tuple[str, ...]
    imports: str
    unit: str
    origin: str


GITHUB = "https://github.com/{}/issues/{{}}"
PYTORCH = GITHUB.format("pytorch/pytorch")
PTFLOPS = GITHUB.format("sovrasov/flops-counter.pytorch")
TORCH = ("torch", ("2.11.0", "2.15.0"))
BOTH = "FLOP, or FLOP and multiply-adds"
PRODUCTS = "multiply-adds"

COUNTERS = {
    "flop_counter_mode": Counter("PyTorch FlopCounterMode", *TORCH, "torch.utils.flop_counter", "FLOP", PYTORCH),
    "torch_profiler": Counter("torch.profiler, with_flops", *TORCH, "torch.profiler", "FLOP", PYTORCH),
    "fvcore": Counter(
        "fvcore", "fvcore", ("0.1.5.post20221221",), "fvcore.nn", PRODUCTS, GITHUB.format("facebookresearch/fvcore")
    ),
    "ptflops": Counter("ptflops, pytorch", "ptflops", ("0.7.5",), "ptflops", f"{PRODUCTS} a sample", PTFLOPS),
    "ptflops_aten": Counter("ptflops, aten", "ptflops", ("0.7.5",), "ptflops", PRODUCTS, PTFLOPS),
    "pthflops": Counter(
        "pthflops", "pthflops", ("0.4.2",), "pthflops", PRODUCTS, GITHUB.format("1adrianb/pytorch-estimate-flops")
    ),
    "deepspeed": Counter(
        "DeepSpeed's profiler",
        "deepspeed",
        ("0.19.8",),
        "deepspeed.profiling.flops_profiler",
        BOTH,
        GITHUB.format("deepspeedai/DeepSpeed"),
    ),
    "calflops": Counter(
        "calflops", "calflops", ("0.3.2",), "calflops", BOTH, GITHUB.format("MrYxJ/calculate-flops.pytorch")
    ),
    "thop": Counter("thop", "thop", ("0.1.1.post2209072238",), "thop", PRODUCTS, GITHUB.format("ultralytics/thop")),
    "torchinfo": Counter(
        "torchinfo", "torchinfo", ("1.8.0",), "torchinfo", PRODUCTS, GITHUB.format("TylerYep/torchinfo")
    ),
}
"""The names are those of `measure/counters/harness/registry.py`."""


def faults_of(counter: str, module: str = "") -> tuple[Fault, ...]:
    """The faults of one counter, in the order of its file, or of another module. Needs torch, not the counter."""
    return tuple(importlib.import_module(module or f"{REPRODUCTIONS}.{counter}").FAULTS)


def installed(counter: str) -> str:
    """The version of the counter's package; "" if it is not installed."""
    try:
        return metadata.version(COUNTERS[counter].package)
    except metadata.PackageNotFoundError:
        return ""
