"""calflops' calculate_flops, as its users run it: real tensors, eval mode, gradients on, back-propagation included.

It began as a copy of DeepSpeed's flops profiler and counts by the same rules (`deepspeed.py`), but sees no `@`, mm,
bmm, attention or einops, divides a transposed convolution by its groups twice, drops all but the sizes of resized
images, and counts a module once for each parent that has it. `native_value` is its FLOP; its multiply-adds are left
out. See `wrapped_functions.py` for how rows are distinguished.

Its backward pass is the forward pass times a factor, 2 by default: no layer, no frozen weight and no attention is
looked at. The rows of phase backward are that, nothing counted. Its parameters are those that a gradient is asked for.
It takes tensors alone as inputs, and a model with parameters. It leaves functions of torch wrapped, all of them after
an exception; they are put back.
"""

import dataclasses
import inspect
from collections import Counter, defaultdict
from typing import Any

import torch
from calflops import calculate_flops, calculate_pipline, pytorch_ops

from measure.counters.adapters.wrapped_functions import TORCH, FunctionListener
from measure.counters.rows import merged, rows, visited
from measure.model.module_paths import ModulePaths
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

BACKWARD_PER_FORWARD = int(inspect.signature(calculate_flops).parameters["compute_bp_factor"].default)
"""What it takes the backward pass for, in forward passes, by default."""


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each function.

    Raises Inconsistent if its rules do not add up to what it says, and whatever its rules or the model raise.
    """
    with evaluating(model), ModulePaths(model) as paths:
        listener = FunctionListener(pytorch_ops, model, paths, TORCH)
        stacks = calculate_pipline.module_flop_count, calculate_pipline.module_mac_count
        with listener.listening(*stacks), listener.unseen:
            flop, _, parameters = calculate_flops(
                model,
                args=[*inputs],
                include_backPropagation=True,
                print_results=False,
                output_as_string=False,
            )
    modules = dict(model.named_modules(remove_duplicate=False))
    own: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for path, counted in listener.own.items():
        own[id(modules[path])].update(counted)
    forward = merged(own[id(module)] for module in visited(model) if id(module) in own)  # as often as it adds them up
    heard = sum(forward.values())
    if (1 + BACKWARD_PER_FORWARD) * heard != flop:
        raise Inconsistent(f"calflops gave {flop} FLOP, its rules {1 + BACKWARD_PER_FORWARD} × {heard}")
    blank = FlopCount(counter="calflops", workload=workload, batch_size=batch_size, phase="forward", native_unit="flop")
    note = f"note: {BACKWARD_PER_FORWARD} × its forward pass, not counted"
    twice = {key: BACKWARD_PER_FORWARD * flop for key, flop in forward.items()}
    return [
        *rows(dataclasses.replace(blank, **listener.uncounted(), parameters=parameters), forward),
        *rows(dataclasses.replace(blank, phase="backward", reason=note), twice),
    ]
