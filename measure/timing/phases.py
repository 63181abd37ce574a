"""The phases of a step, and one stretch of steps from end to end: passes of their own, beside the blocks.

Blocks, collector and suspension as in `blocks.py`. Not claimed: a headline time; marks cost a little in each step.
"""

import gc
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from measure.timing.blocks import Announce, Step, block_of, collector_off, steps_for
from measure.timing.clocks import Clock
from measure.timing.protocols import Protocol
from measure.timing.stopping import step_time_s
from measure.timing.suspension import SUSPENDED, SuspensionWatch
from results.errors import Inconsistent, Unavailable
from results.records.samples import Sample


def measure_phases(
    step: Step, clock: Clock, protocol: Protocol, step_s: float | None = None, announce: Announce | None = None
) -> list[Sample]:
    """Time the phases of a step, in a pass of its own.

    step: takes a `mark` and calls it as each phase begins and with "end" after the last. What runs before the first
    mark (zero_grad) belongs to "optimizer". Returns, for each block of steps, one `Sample` a phase: together they are
    the whole block. device_s: between events; wall_s: how long the host took to issue the phase (on a CPU: to do it).
    An event at each mark costs the device under 2 µs, so a headline time is never taken from this pass.
    """
    estimate_s = step_time_s(block_of(step, clock, 1, "warmup")) if step_s is None else step_s
    steps = steps_for(protocol.block_s, estimate_s)
    blocks: list[Sample] = []
    with collector_off(), SuspensionWatch() as watch:
        origin_s = clock.wall_s()
        for done in range(1, protocol.phase_blocks + 1):
            watch.was_suspended()
            if announce is not None:
                announce(steps, "phase", protocol.lead_in_steps)
            block = phase_block(step, clock, steps, protocol.lead_in_steps)
            blocks += [replace(each, part=SUSPENDED) for each in block] if watch.was_suspended() else block
            gc.collect()
            elapsed_s = clock.wall_s() - origin_s
            if elapsed_s + elapsed_s / done > protocol.phase_cap_s:
                break
    return blocks


def measure_stretch(step: Step, clock: Clock, lengths: Sequence[int], work: str) -> list[Sample]:
    """Run the steps of one work once, from end to end, and time them in consecutive segments of `lengths` steps.

    Nothing waits between two segments: each begins at the event at which the one before ended, so that together they
    are the whole stretch, and the one synchronise belongs to the last. On a device with time of its own a segment's
    wall time is how long the host took to issue it, but their sum is that of the whole. Raises Unavailable where the
    process was suspended meanwhile.
    """
    blocks = []
    with collector_off(), SuspensionWatch() as watch:
        clock.synchronize()
        points = [(clock.wall_s(), clock.event())]
        for steps in lengths:
            for _ in range(steps):
                step()
            points.append((clock.wall_s(), clock.event()))
            gc.collect()
        issued_s = clock.wall_s()
        clock.synchronize()
        end_s = clock.wall_s()
        if watch.was_suspended():
            raise Unavailable(f"the process was suspended within its {sum(lengths)} steps")
    for index, ((from_s, start), (to_s, end)) in enumerate(itertools.pairwise(points)):
        last = index == len(lengths) - 1
        device_s = clock.between_s(start, end)
        if device_s is not None and not device_s > 0:
            raise Inconsistent(f"expected device time to pass in {lengths[index]} steps, got {device_s} s")
        wait_s = end_s - issued_s if last and device_s is not None else None
        wall_s = (end_s if last and device_s is not None else to_s) - from_s
        blocks.append(
            Sample(
                part="measure",
                steps=lengths[index],
                start_s=from_s,
                wall_s=wall_s,
                device_s=device_s,
                sync_wait_s=wait_s,
                work=work,
            )
        )
    return blocks


def phase_block(step: Step, clock: Clock, steps: int, lead_in_steps: int) -> list[Sample]:
    """One block whose phases are timed: a sample for each."""
    points: list[tuple[str, float, Any]] = []

    def mark(phase: str) -> None:
        points.append((phase, clock.wall_s(), clock.event()))

    for _ in range(lead_in_steps):
        step()
    mark("end")
    for _ in range(steps):
        step(mark)
    if points[-1][0] != "end":
        mark("end")
    clock.synchronize()
    return _by_phase(points, clock, steps)


def _by_phase(points: Sequence[tuple[str, float, Any]], clock: Clock, steps: int) -> list[Sample]:
    wall_s: dict[str, float] = {}
    device_s: dict[str, float | None] = {}
    for (name, from_s, start), (_, to_s, end) in itertools.pairwise(points):
        phase = "optimizer" if name == "end" else name
        span_s = clock.between_s(start, end)
        wall_s[phase] = wall_s.get(phase, 0.0) + to_s - from_s
        device_s[phase] = None if span_s is None else (device_s.get(phase) or 0.0) + span_s
    start_s = points[0][1]
    return [
        Sample(part="phase", phase=phase, steps=steps, start_s=start_s, wall_s=wall_s[phase], device_s=device_s[phase])
        for phase in wall_s
    ]
