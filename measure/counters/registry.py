"""The counters by name: where each adapter is, and what to install for it. No torch, no counter is imported here.

An adapter is a function (model, inputs, *, workload, batch_size) -> list[FlopCount]: one row for the total and one for
each operator it tells apart, for phase forward and, where the counter can, backward (of the sum of all output tensors).
Each runs in a process of its own (`isolation.py`), because several of them patch torch while they count. Nothing here
says that a counter is right.
"""

import difflib
import shlex
from collections.abc import Mapping

Registry = Mapping[str, tuple[str, str]]

COUNTERS: Registry = {
    "flopledger": ("measure.counters.adapters.dispatched:flopledger", ""),
    "flop_counter_mode": ("measure.counters.adapters.dispatched:flop_counter_mode", ""),
    "torch_profiler": ("measure.counters.adapters.dispatched:torch_profiler", ""),
    "fvcore": ("measure.counters.adapters.fvcore:count", "fvcore>=0.1.5.post20221221,<0.2"),
    "ptflops": ("measure.counters.adapters.ptflops:count", "ptflops>=0.7.4,<0.8"),
    "ptflops_aten": ("measure.counters.adapters.ptflops:count_aten", "ptflops>=0.7.4,<0.8"),
    "pthflops": ("measure.counters.adapters.pthflops:count", "pthflops>=0.4.2,<0.5"),
    "deepspeed": ("measure.counters.adapters.deepspeed:count", "deepspeed>=0.19,<0.20"),
    "calflops": ("measure.counters.adapters.calflops:count", "calflops>=0.3.2,<0.4 transformers>=4.44,<6"),
    "thop": ("measure.counters.adapters.thop:count", "thop>=0.1.1.post2209072238,<0.2"),
    "torchinfo": ("measure.counters.adapters.torchinfo:count", "torchinfo>=1.8,<2"),
}
"""Name → ("module:function", what to install), the latter as in the requirements (a test holds them together), with a
space between several (calflops imports transformers and does not say so), or empty for what this project or torch
brings. The order is that of every list of counters, in the options of a cell too."""


def check_counter(name: str, registry: Registry = COUNTERS) -> None:
    """Raises ValueError, one line with the nearest name, if there is no such counter."""
    if name in registry:
        return
    near = difflib.get_close_matches(name.lower(), registry, n=1, cutoff=0.5)
    hint = f"nearest: {near[0]}" if near else f"there are {', '.join(registry)}"
    raise ValueError(f"unknown counter {name!r}; {hint}")


def install_line(requirement: str) -> str:
    """What a person types to get a missing counter; of one without a requirement, that there is nothing to type."""
    if not requirement:
        return "nothing to install: this project or torch brings it"
    return f"python -m pip install {' '.join(map(shlex.quote, requirement.split()))}"
