"""calflops' calculate_flops, as its users run it: real tensors, eval mode, gradients on, back-propagation included.

It began as a copy of DeepSpeed's flops profiler and counts by the same rules (`deepspeed.py`), but sees no `@`, mm,
bmm, attention or einops, divides a transposed convolution by its groups twice, drops all but the sizes of resized
images, and counts a module once for each parent that has it. `native_value` is its FLOP; its multiply-adds are half of
the product rows, with none for recurrent layers and einsum, of which `reason` tells. See `wrapped_functions.py` for how
rows are distinguished.

Its backward pass is the forward pass times a factor, 2 by default: no layer, no frozen weight and no
attention is looked at. The rows of phase backward are that, nothing counted. Its parameters are those that a gradient
is asked for. It takes tensors alone as inputs, and a model with parameters. It leaves functions of torch wrapped, all
of them after an exception; they are put back.
"""

import contextlib
import inspect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from calflops import calculate_flops, calculate_pipline, flops_counter, pytorch_ops

from measure.counters.adapters.wrapped_functions import TORCH, FunctionListener, note_of, visited
from measure.counters.harness.rows import merged, rows
from measure.model.module_paths import ModulePaths
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

NAME = "calflops"

BACKWARD_PER_FORWARD = int(inspect.signature(calculate_flops).parameters["compute_bp_factor"].default)
"""What it takes the backward pass for, in forward passes, by default."""


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each function.

    Raises Inconsistent if its rules do not add up to what it says, and whatever its rules or the model raise.
    """
    with evaluating(model), ModulePaths(model) as paths:
        listener = FunctionListener(pytorch_ops, model, paths, TORCH)
        stacks = calculate_pipline.module_flop_count, calculate_pipline.module_mac_count
        with listener.listening(*stacks), _ended(), listener.unseen:
            flop, mac, parameters = calculate_flops(
                model,
                args=[*inputs],
                include_backPropagation=True,
                print_results=False,
                output_as_string=False,
            )
    own, forward_mac = _as_visited(model, listener)
    _check(own, forward_mac, flop, mac)
    ignored, not_understood = listener.uncounted
    forward = FlopCount(
        counter=NAME,
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="flop",
        ignored=ignored,
        not_understood=not_understood,
        reason=note_of(listener, forward_mac),
        parameters=parameters,
    )
    backward = FlopCount(
        counter=NAME,
        workload=workload,
        batch_size=batch_size,
        phase="backward",
        native_unit="flop",
        reason=f"note: {BACKWARD_PER_FORWARD} × its forward pass, not counted",
    )
    counted = merged(own)
    twice = {key: BACKWARD_PER_FORWARD * flop for key, flop in counted.items()}
    return rows(forward, counted) + rows(backward, twice)


def _as_visited(model: torch.nn.Module, listener: FunctionListener) -> tuple[list[Counter[tuple[str, str]]], int]:
    """(what each module counted, as often as calflops adds it up; the multiply-adds so added)."""
    modules = dict(model.named_modules(remove_duplicate=False))
    counted: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    mac: Counter[int] = Counter()
    for path, found in listener.own.items():
        counted[id(modules[path])].update(found)
        mac[id(modules[path])] += listener.mac[path]
    met = [id(module) for module in visited(model)]
    return [counted[key] for key in met if key in counted], sum(mac[key] for key in met)


def _check(own: Iterable[Counter[tuple[str, str]]], mac: int, said_flop: float, said_mac: float) -> None:
    """It says both passes together."""
    both = 1 + BACKWARD_PER_FORWARD
    flop = sum(counted.total() for counted in own)
    if (both * flop, both * mac) != (said_flop, said_mac):
        raise Inconsistent(
            f"calflops gave {said_flop} FLOP and {said_mac} MAC, its rules {both} × {flop} and {both} × {mac}"
        )


@contextlib.contextmanager
def _ended() -> Iterator[None]:
    """Ends the calculation that calflops began, so that nothing of it stays on the model after an exception."""
    original = flops_counter.CalFlopsPipline
    begun = []

    def begin(*args: Any, **kwargs: Any) -> Any:
        begun.append(original(*args, **kwargs))
        return begun[-1]

    flops_counter.CalFlopsPipline = begin
    try:
        yield
    finally:
        flops_counter.CalFlopsPipline = original
        for calculation in begun:
            calculation.end_flops_calculate()
