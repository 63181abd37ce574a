"""DeepSpeed's flops profiler, as its users run it beside the runtime: real tensors, eval mode, gradients on.

Its FLOP are 2 a multiply-add of convolutions, matrix products and attention (dense, causal or not), 1 an output for the
bias of a convolution but none for that of a linear layer, 2 an element of batch norm in eval mode, 5 of other
normalisations, 1 an input of pooling, of ReLU, GELU and SiLU and of torch.add and torch.mul, none for `a + b`, `a * b`,
sigmoid or tanh. Only functions that it wraps are seen: `from torch.nn.functional import linear` is not. Its
multiply-adds are left out: half of the product rows here, but none for recurrent layers and einsum. See
`wrapped_functions.py` for how rows are distinguished.

Forward only. The backward pass that its runtime prints is (2 + recompute factor) times this number by decree and left
out here, as are its times. It is told to use the CPU, else it would hold a GPU that this process has no use for. Its
warm-up pass is left out: it changes no count.
"""

import os
from typing import Any

import torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when imported

import einops
from deepspeed.profiling.flops_profiler import profiler

from measure.counters.adapters.wrapped_functions import TORCH, FunctionListener
from measure.counters.rows import merged, rows
from measure.model.module_paths import ModulePaths
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each function.

    Raises Inconsistent if its rules do not add up to what it says, and whatever its rules or the model raise.
    """
    with evaluating(model), ModulePaths(model) as paths:
        listener = FunctionListener(profiler, model, paths, {**TORCH, "einops": einops})
        with listener.listening(profiler.module_flop_count, profiler.module_mac_count):
            profile = profiler.FlopsProfiler(model)
            profile.start_profile()
            with listener.unseen:
                model(*inputs)
            flop, parameters = profile.get_total_flops(), profile.get_total_params()
            profile.end_profile()
    counted = merged(listener.own.values())
    if (heard := sum(counted.values())) != flop:
        raise Inconsistent(f"DeepSpeed gave {flop} FLOP, its rules {heard}")
    return rows(
        FlopCount(
            counter="deepspeed",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="flop",
            **listener.uncounted(),
            parameters=parameters,
        ),
        counted,
    )
