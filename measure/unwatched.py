"""Elementwise sums and products as they run while nobody listens at the dispatcher, with the sizes they have.

A dispatch mode changes what it watches: with one, the engine adds gradients that meet to a new tensor, and a linear
layer its bias; without, both are added in place. torch.profiler counts the first and not the second, so its account
needs the calls of a plain step: recorded by torch's profiler on real tensors, its own counts not asked for. Eval mode,
gradients on, backward of the sum of the outputs, as everywhere among the counters.
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


def elementwise(model: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[PlainCall, ...]:
    """Every call of add and mul in one pass forward and one back. Those of a backward pass have no module."""
    with evaluating(model):
        with _recording() as forward, ModuleRanges(model):
            outputs = model(*inputs)
        total = summed(outputs)
        found = [*_calls(forward, "forward")]
        if total is not None:
            with _recording() as backward:
                total.backward()
            found += _calls(backward, "backward")
    return tuple(found)


def _recording() -> profile:
    return profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True)


def _calls(recording: profile, phase: str) -> Iterator[PlainCall]:
    for event in recording.events():
        if event.name in NAMES:
            shapes = event.input_shapes
            yield PlainCall(phase, event.name.replace("::", "."), _path(event), tuple(shapes[0]) if shapes else ())


def _path(event: Any) -> str:
    while event is not None and not event.name.startswith(MODULE):
        event = event.cpu_parent
    return "" if event is None else str(event.name).removeprefix(MODULE)
