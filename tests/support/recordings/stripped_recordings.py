"""Recordings made here by torch.profiler on this CPU, and what older recorders would have kept of them.

torch 1.8 kept the sizes of tensors: no values, no dtypes, no numbers of autograd nodes, no arrows, no frames of the
engine. Its backward pass ran on a thread of its own (as CUDA's does), data loaders are calls of the forward thread, and
cuDNN's convolutions had no calls inside that take the output (`inner` keeps those of oneDNN).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from analysis.trace.operations import is_product
from cleaning.trace.clean import CleanedTrace, clean
from measure.trace.attribution.attribute import attribute
from measure.trace.readers.read import read
from results.records import OperationInstance

Event = dict[str, Any]

INNER = ("aten::as_strided_", "aten::resize_")
"""Calls inside of oneDNN's convolutions that take the output."""

ENGINE_THREAD = 77


def recorded(run: Callable[[], Any], path: Path) -> list[Event]:
    """The events of one recorded run, with shapes; the first run, which is not recorded, lets libraries set up."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    events: list[Event] = json.loads(path.read_text())["traceEvents"]
    return events


def stripped(events: list[Event], *, inner: bool = False, number: bool = False) -> list[Event]:
    """What torch 1.8 kept; inner: with the calls in a convolution that take its output; number: with node numbers."""
    kept = [event for event in events if event.get("cat") == "cpu_op" and _keeps(event["name"], inner)]
    backward = [event for event in kept if event["name"].endswith("Backward0")]
    begins = min((event["ts"] for event in backward), default=float("inf"))
    return [_as_of_old(event, begins, number) for event in kept]


def _keeps(name: str, inner: bool) -> bool:
    return not name.startswith("autograd::engine") and (inner or name not in INNER)


def _as_of_old(event: Event, begins: float, number: bool) -> Event:
    args = {"Input dims": event["args"].get("Input Dims", [])}
    if number:
        args |= {key: event["args"][key] for key in ("Sequence number", "Fwd thread id") if key in event["args"]}
    thread = ENGINE_THREAD if event["ts"] >= begins else event["tid"]
    return {**event, "cat": "Operator", "tid": thread, "args": args}


def read_back(events: list[Event], path: Path) -> CleanedTrace:
    """Events written to a file as a recorder would, read, attributed and cleaned."""
    path.write_text(json.dumps(events))
    recording = attribute(read(path))
    return clean(recording.calls, recording.kernels)


def products(found: CleanedTrace, *phases: str) -> list[OperationInstance]:
    """The products of some phases (all if none is named), in the order of start."""
    return [each for each in found.instances if is_product(each.name) and (not phases or each.phase in phases)]


def train(model: torch.nn.Module, *inputs: torch.Tensor) -> Callable[[], None]:
    """A training step without an optimizer; gradients add up as after the first step."""

    def step() -> None:
        output = model(*inputs)
        (output if isinstance(output, torch.Tensor) else sum(each.sum() for each in output)).sum().backward()

    step()
    return step


def both(run: Callable[[], Any], path: Path, **kept: bool) -> tuple[list[OperationInstance], list[OperationInstance]]:
    """The products of a recording as it was made, and stripped; path: a folder."""
    events = recorded(run, path / "recorded.json")
    full = products(read_back(events, path / "full.json"))
    old = products(read_back(stripped(events, **kept), path / "old.json"))
    assert [each.name for each in full] == [each.name for each in old]
    return full, old


def counts(found: list[OperationInstance]) -> list[int | None]:
    """FLOP of each by sizes; None: unknown."""
    return [each.expected_flop for each in found]
