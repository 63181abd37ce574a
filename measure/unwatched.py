"""Elementwise sums and products as they run while nobody listens at the dispatcher, with the sizes they have.

A dispatch mode changes what it watches: with one, the engine adds gradients that meet to a new tensor, and a linear
layer its bias; without, both are added in place. And what checkpointing calculates again ends, as soon as the last
tensor is there that the backward pass needs, inside of an operator that was called and does not reach the dispatcher.
torch.profiler counts what is called, so its account needs the calls of a plain step: recorded by torch's profiler on
real tensors, its own counts not asked for. Eval mode, gradients on, backward of the sum of the outputs, as everywhere
among the counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from measure.counters.running import evaluating, summed
from measure.module_ranges import MODULE, ModuleRanges
from results.calls import PlainCall

NAMES = frozenset(("aten::add", "aten::mul"))
PRODUCTS = frozenset(("aten::conv2d", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"))
FORWARD_ONLY = (MODULE, "aten::conv2d", "aten::linear")
"""What no formula of a derivative calls: in a backward pass it, and what runs inside, is calculated again."""


def elementwise(model: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[PlainCall, ...]:
    """Every call of add and mul in one pass forward and one back, and those of products that are calculated again.

    What belongs to the backward pass itself has no module.
    """
    with evaluating(model), ModuleRanges(model):
        with _recording() as forward:
            outputs = model(*inputs)
        found = [*_calls(forward)]
        total = summed(outputs)
        if total is not None:
            with _recording() as backward:
                total.backward()
            found += _backward_calls(backward)
    return tuple(found)


def _recording() -> profile:
    return profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True)


def _calls(recording: profile) -> Iterator[PlainCall]:
    for event in recording.events():
        if event.name in NAMES:
            yield _call("forward", event)


def _backward_calls(recording: profile) -> Iterator[PlainCall]:
    for event in recording.events():
        if event.name in NAMES or event.name in PRODUCTS:
            again = any(around.name.startswith(FORWARD_ONLY) for around in _around(event))
            if again or event.name in NAMES:
                yield _call("recompute" if again else "backward", event)


def _call(phase: str, event: Any) -> PlainCall:
    path = next((around.name for around in _around(event) if around.name.startswith(MODULE)), MODULE)
    shapes = tuple(tuple(shape) for shape in event.input_shapes)
    return PlainCall(phase, event.name.replace("::", "."), path.removeprefix(MODULE), shapes)


def _around(event: Any) -> Iterator[Any]:
    """It, and the events around it."""
    while event is not None:
        yield event
        event = event.cpu_parent
