"""Tries changes of a training step, each interleaved with the unchanged step: gain, interval and memory.

    def train(model, optimizer, batch):
        images, labels = batch
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    for row in flopledger.what_if(train, model, optimizer, (images, labels)):
        print(row.change, row.ratio, row.low, row.high, row.reason)

The caller's own model and optimizer are copied and stay as they are. Not claimed: what a change does to the loss; what
two changes bring together.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from measure.device import device_facts
from measure.profiler import live_peak_bytes, memory_profiler
from measure.timing import Clock, Protocol, clock_for, measure_pairs
from measure.what_if.changes import CHANGES
from measure.what_if.parts import TrialParts, held_bytes, on_device
from results import Unavailable, one_line
from results.records import CHANGE_NAMES, UNCHANGED, ChangeTrial, change_named, ranked_changes

OwnChange = Callable[[TrialParts, int | None], TrialParts]


def what_if(
    step: Callable[[Any, Any, Any], Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any = None,
    *,
    loader: torch.utils.data.DataLoader[Any] | None = None,
    changes: Sequence[str] | None = None,
    own: Mapping[str, OwnChange] | None = None,
    quick: bool = False,
) -> list[ChangeTrial]:
    """One row for each change, the best first; those that do not apply or failed are last, with the reason.

    step: step(model, optimizer, batch) trains one step of the model and optimizer that it is given, on a batch that
    lies on the model's device. batch: or a loader, from which each step takes its batch within its own time. changes:
    names of CHANGE_NAMES, with "=N" for a batch_size or workers; None: all. own: other changes by name, each a function
    of (`TrialParts`, None) that returns changed parts. quick: times ÷ 5. The row "none" is the step as it is.

    Raises ValueError, in one line, for a name that is none, or a step that does not call the model that it is given.
    """
    own = own or {}
    asked = [*dict.fromkeys(CHANGE_NAMES if changes is None else changes), *own]
    for name in asked:
        if name not in own:
            change_named(name)
    parts = _valid_parts(step, model, optimizer, batch, loader)
    protocol = Protocol.for_device(parts.device.type, quick).for_pass()
    rows = []
    for name in asked:
        try:
            rows += try_change(parts, name, protocol, own)
        except Exception as fault:  # noqa: BLE001  whatever a change raises is its row
            rows.append(ChangeTrial(change=name, status=_status(fault), reason=_reason(fault)))
    named = str(device_facts(str(parts.device)).name or "")
    return ranked_changes(replace(row, device=str(parts.device), device_name=named) for row in rows)


def try_change(
    parts: TrialParts, change: str, protocol: Protocol, own: Mapping[str, OwnChange] | None = None
) -> list[ChangeTrial]:
    """Rows of the step as it is and of the changed one. Raises what the change or the step raises, Unavailable where
    the change does not apply."""
    name, number = (change, None) if own and change in own else change_named(change)
    function = own[name] if own and name in own else CHANGES[name]
    before, now = parts.copied(), function(parts.copied(), number)
    label = f"{name}={now.samples}" if name == "batch_size" else change
    label = f"{name}={now.loader.num_workers}" if name == "workers" and now.loader is not None else label
    clock = clock_for(parts.device)
    timing = measure_pairs(before.ready(), now.ready(), clock, protocol)
    size = now.samples / before.samples
    low, high = (None if end is None else size * end for end in (timing.ratio.low, timing.ratio.high))
    as_it_is = ChangeTrial(
        change=UNCHANGED,
        status="ok",
        ratio=1.0,
        memory_bytes=peak_bytes(before, clock),
        step_time_s=timing.a_step_s,
        samples=before.samples,
    )
    changed = ChangeTrial(
        change=label,
        status=timing.status,
        reason=timing.reason,
        ratio=size * timing.ratio.ratio,
        low=low,
        high=high,
        memory_bytes=peak_bytes(now, clock),
        step_time_s=timing.b_step_s,
        samples=now.samples,
        rounds=timing.ratio.rounds,
    )
    return [as_it_is, changed]


def peak_bytes(parts: TrialParts, clock: Clock) -> int | None:
    """What a step holds at its highest: what lies there before it, and what it allocates through torch, bytes.

    None where the step does not ask torch's allocator, as a captured graph does not.
    """
    if not parts.allocates:
        return None
    run = parts.ready()
    parts.optimizer.zero_grad(set_to_none=True)
    held = held_bytes(parts)
    if parts.device.type == "cuda":
        clock.synchronize()
        torch.cuda.reset_peak_memory_stats(parts.device)
        before = torch.cuda.memory_allocated(parts.device)
        run()
        clock.synchronize()
        return held + int(torch.cuda.max_memory_allocated(parts.device)) - int(before)
    with memory_profiler() as recording:
        run()
    return held + live_peak_bytes(recording)


def _valid_parts(
    step: Callable[[Any, Any, Any], Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    loader: torch.utils.data.DataLoader[Any] | None,
) -> TrialParts:
    """The parts of the step as it is, once one step of a copy has run. Raises ValueError."""
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected a module as the second argument, got {type(model).__name__}")
    if (batch is None) == (loader is None):
        raise ValueError("expected a batch or a loader, got " + ("neither" if batch is None else "both"))
    parts = TrialParts(step, model, optimizer, batch, loader)
    if batch is not None:
        parts = replace(parts, batch=on_device(batch, parts.device))
    tried = parts.copied()
    called: list[bool] = []
    tried.model.register_forward_hook(lambda *_: called.append(True))
    tried.ready()()
    if not called:
        raise ValueError("expected a step that calls the model it is given, got one that does not: copies are tried")
    _ = parts.samples  # raises for a batch without samples
    gc.collect()
    return parts


def _status(fault: BaseException) -> str:
    if isinstance(fault, Unavailable):
        return "unavailable"
    return "out_of_memory" if isinstance(fault, (MemoryError, torch.OutOfMemoryError)) else "crashed"


def _reason(fault: BaseException) -> str:
    words = one_line(str(fault), 200)
    return words if isinstance(fault, Unavailable) else f"{type(fault).__name__}: {words}"
