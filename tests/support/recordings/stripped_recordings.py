"""Recordings made here by torch.profiler on this CPU, and what older recorders would have kept of them.

torch 1.9 kept the sizes of tensors and the numbers of autograd nodes: no values, no dtypes, no frames of the engine.
Its backward pass ran on a thread of its own (as CUDA's does).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from analysis.trace.operations import is_product
from cleaning.trace.clean import CleanedTrace, clean
from measure.trace.attribute import attribute
from measure.trace.read import read
from results.records.counts import OperationInstance

Event = dict[str, Any]

ENGINE_THREAD = 77


def recorded(run: Callable[[], Any], path: Path) -> list[Event]:
    """The events of one recorded run, with shapes; the first run, which is not recorded, lets libraries set up."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    events: list[Event] = json.loads(path.read_text())["traceEvents"]
    return events


def stripped(events: list[Event]) -> list[Event]:
    """What torch 1.9 kept."""
    kept = [e for e in events if e.get("cat") == "cpu_op" and not e["name"].startswith("autograd::engine")]
    backward = [event for event in kept if event["name"].endswith("Backward0")]
    begins = min((event["ts"] for event in backward), default=float("inf"))
    return [_as_of_old(event, begins) for event in kept]


def _as_of_old(event: Event, begins: float) -> Event:
    args = {"Input dims": event["args"].get("Input Dims", [])}
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


def both(run: Callable[[], Any], path: Path) -> tuple[list[OperationInstance], list[OperationInstance]]:
    """The products of a recording as it was made, and stripped; path: a folder."""
    events = recorded(run, path / "recorded.json")
    full = products(read_back(events, path / "full.json"))
    old = products(read_back(stripped(events), path / "old.json"))
    assert [each.name for each in full] == [each.name for each in old]
    return full, old


def counts(found: list[OperationInstance]) -> list[int | None]:
    """FLOP of each by sizes; None: unknown."""
    return [each.expected_flop for each in found]
