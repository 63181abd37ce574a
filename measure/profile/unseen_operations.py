"""What runs while nobody listens at the dispatcher: sums and products of elements, and products inside of operators.

A dispatch mode changes what it watches: with one, the engine adds gradients that meet to a new tensor, and a linear
layer its bias; without, both are added in place. And what checkpointing calculates again ends, as soon as the last
tensor is there that the backward pass needs, inside of an operator that was called and does not reach the dispatcher.
torch.profiler counts what is called, so its account needs the calls of a plain step: recorded by torch's profiler on
real tensors, its own counts not asked for. Eval mode, gradients on, backward of the sum of the outputs, as everywhere
among the counters.
"""

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from measure.model.module_paths import MODULE, ModuleRanges
from measure.model.state_snapshot import evaluating, summed
from results.records.counts import PlainCall

NAMES = frozenset(("aten::add", "aten::mul"))
PRODUCTS = frozenset(("aten::conv2d", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"))
FORWARD_ONLY = (MODULE, "aten::conv2d", "aten::linear")
"""What no formula of a derivative calls: in a backward pass it, and what runs inside, is calculated again."""


def plain_calls(model: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[PlainCall, ...]:
    """Every call of add and mul in one pass forward and one back, and those of products that are calculated again, or
    inside of another operator.

    What belongs to the backward pass itself has no module.
    """
    with evaluating(model), ModuleRanges(model):
        with _recording() as forward:
            outputs = model(*inputs)
        calls = [*_calls(forward, backward=False)]
        total = summed(outputs)
        if total is not None:
            with _recording() as backward:
                total.backward()
            calls += _calls(backward, backward=True)
    return tuple(calls)


def _recording() -> profile:
    return profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True)


def _calls(recording: profile, backward: bool) -> Iterator[PlainCall]:
    events = sorted(recording.events(), key=lambda event: event.time_range.start)
    phases = {id(event): _phase(event, backward) for event in events}
    numbers, seen = {}, Counter[tuple[str, str]]()
    for event in events:
        numbers[id(event)] = seen[phases[id(event)], event.name]
        seen[phases[id(event)], event.name] += 1
    for event in events:
        if event.name not in NAMES | PRODUCTS:
            continue
        whole = [around for around in _around(event.cpu_parent) if _is_whole(around.name)]
        inside = () if event.name in NAMES else tuple((_aten(e.name), numbers[id(e)]) for e in whole)
        if event.name in NAMES or inside or phases[id(event)] == "recompute":
            yield _call(phases[id(event)], event, inside)


def _phase(event: Any, backward: bool) -> str:
    again = backward and any(around.name.startswith(FORWARD_ONLY) for around in _around(event))
    return "recompute" if again else "backward" if backward else "forward"


def _call(phase: str, event: Any, inside: tuple[tuple[str, int], ...]) -> PlainCall:
    path = next((around.name for around in _around(event) if around.name.startswith(MODULE)), MODULE)
    shapes = tuple(tuple(shape) for shape in event.input_shapes)
    return PlainCall(phase, _aten(event.name), path.removeprefix(MODULE), shapes, inside)


@functools.cache
def _is_whole(name: str) -> bool:
    """Whether it is an operator that reaches the dispatcher as one: not `linear`, which is called as addmm or mm."""
    space, _, bare = name.partition("::")
    packet = getattr(getattr(torch.ops, space), bare, None) if bare else None
    if packet is None:
        return False
    return not any(map(_is_composite, {name, *(f"{name}.{overload}" for overload in packet.overloads())}))


def _is_composite(overload: str) -> bool:
    """Whether it is made of other operators. TorchScript has overloads that the dispatcher does not know."""
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(overload, "CompositeImplicitAutograd")
    except RuntimeError:
        return False


def _aten(name: str) -> str:
    return name.replace("::", ".")


def _around(event: Any) -> Iterator[Any]:
    """It, and the events around it."""
    while event is not None:
        yield event
        event = event.cpu_parent
