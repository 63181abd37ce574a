"""Times a training step in blocks: warms up until its time is steady, measures until the interval is narrow enough.

`warm_up` and `measure_blocks` take a function that runs a step, a clock and a `Protocol`, and return a `WarmUp` and a
`Timing`. `stopping.py` has the rules, their sources and the interval. A block is K steps issued without waiting,
between two events, then one synchronise: waiting after every step would put a launch gap into each. On a device with a
clock a step's time is the time between the events ÷ K; on a CPU it is wall time ÷ K. `BlockTimer` says more.
`measure_phases` times a step's phases, and `measure_stretch` times steps from end to end. Both are separate passes,
since their marks cost a little. Not claimed: that clocks, heat and other processes did not matter; telemetry polls
those.
"""

import contextlib
import gc
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from analysis.stats.summary import summarise
from analysis.utilization.step_times import in_one_placement
from measure.timing.clocks import Clock
from measure.timing.disturbance import SUSPENDED, SuspensionWatch, disturbance, round_trip, since
from measure.timing.stopping import (
    Interleaved,
    Protocol,
    Timing,
    contended_rules,
    is_narrow,
    narrowing,
    step_time_s,
    timing_of,
    total_s,
)
from results import process
from results.errors import Inconsistent, Unavailable
from results.records.cell import Sample

Step = Callable[..., Any]

Announce = Callable[[int, str, int], None]
"""Called before each block that other ranks must run, too, with its steps, its part and its lead-in steps. It returns
when all ranks are ready (`measure/timing/rank_blocks.py`)."""

AGAIN_FACTOR = 2.0
"""Disturbed blocks are replaced for at most this many times the time that all blocks needed. They are not replaced
where too few blocks are undisturbed for that."""

MOST_LENGTH = 2.5
"""A block that takes this many times the protocol's time is followed by one of fewer steps."""

TRIES = 5
"""Maximum number of times that a block is measured, if the process is suspended in each."""


class WarmUp(NamedTuple):
    """Blocks before measuring. steady: the last two agreed within the protocol's tolerance before its cap.

    suspended: blocks in which the process was suspended, and which are not among the others.
    """

    blocks: list[Sample]
    steady: bool
    suspended: tuple[Sample, ...] = ()

    @property
    def step_s(self) -> float:
        """The latest estimate of a step's time."""
        return step_time_s(self.blocks[-1])


def warm_up(
    step: Step,
    clock: Clock,
    protocol: Protocol,
    announce: Announce | None = None,
    interleaved: Interleaved | None = None,
) -> WarmUp:
    """Run steps until two neighbouring blocks agree (see `Protocol`).

    The first block is one step: it may compile, search algorithms and allocate, so its time counts towards no limit and
    is compared with no other; a second block always follows. interleaved: as for `measure_blocks`. It is warmed up
    after the first block: its kernels may take memory that the first step freed, and then the next step takes new
    memory.
    """
    with BlockTimer(step, clock, announce) as timed:
        blocks = [timed.block(1, "warmup")]
        if interleaved is not None:
            interleaved.warm_up()
        origin_s = timed.used_s()
        while True:
            elapsed_s = timed.used_s() - origin_s
            enough = elapsed_s >= protocol.warm_min_s and sum(b.steps for b in blocks) >= protocol.warm_min_steps
            step_s = step_time_s(blocks[-1])
            change_ratio = step_s / step_time_s(blocks[-2]) - 1 if len(blocks) > 2 else math.inf
            steady = enough and abs(change_ratio) <= protocol.warm_tolerance_ratio
            steps = steps_for(protocol.warm_block_s, step_s)
            if steady or (len(blocks) > 1 and elapsed_s + steps * step_s > protocol.warm_cap_s):
                return WarmUp(blocks, steady, tuple(timed.suspended))
            blocks.append(timed.block(steps, "warmup"))


def measure_blocks(
    step: Step,
    clock: Clock,
    protocol: Protocol,
    step_s: float,
    interleaved: Interleaved | None = None,
    announce: Announce | None = None,
    report: Callable[[str], None] | None = None,
) -> Timing:
    """Time blocks until the protocol's rules are met or its cap is reached.

    step_s: a step's time as the warm-up saw it (`WarmUp.step_s`), from which K follows.
    interleaved: runs once for each block, before the first, after the second, before the third, …
    (`measure/timing/rank_blocks.py`). The rule for the interval then holds for the ratio to it: on a machine that is
    slower and faster by turns the step's time has no narrow interval. report: is called after each block with a text
    that says how wide the interval is.
    """
    steps = steps_for(protocol.block_s, step_s)
    summarise([1.0, 1.0])  # loads what the interval needs, outside of the timed part
    blocks: list[Sample] = []
    with collector_off(), BlockTimer(step, clock, announce, with_round_trip=announce is None) as timed:
        origin_s = timed.used_s()  # after collecting the garbage of compiling, which may take a second
        again_s = math.inf
        while True:
            begun_s, is_before = timed.used_s(), len(blocks) % 2 == 0
            if interleaved is not None and is_before:
                interleaved.run(steps * (step_time_s(blocks[-1]) if blocks else step_s))
            blocks.append(timed.block(steps, "measure", protocol.lead_in_steps))
            if interleaved is not None and not is_before:
                interleaved.run(total_s(blocks[-1:]))
            gc.collect()
            if not protocol.block_s <= total_s(blocks[-1:]) <= MOST_LENGTH * protocol.block_s:
                steps = steps_for(protocol.block_s, step_time_s(blocks[-1]))
            now_s = timed.used_s()
            best = in_one_placement(blocks)
            if not is_narrow(blocks, blocks, protocol, interleaved):
                again_s = math.inf  # also if all blocks were narrow before and later ones widened the interval
            elif again_s == math.inf:
                again_s = AGAIN_FACTOR * (now_s - origin_s) if AGAIN_FACTOR * len(best) >= len(blocks) else 0.0
            rules = contended_rules(blocks, protocol)
            left_s = min(rules.cap_with_s(len(blocks)), again_s) - (now_s - origin_s)
            is_last = now_s - begun_s > left_s
            if report is not None:
                report(narrowing(best, blocks, rules, interleaved, left_s))
            if is_last or is_narrow(best, blocks, rules, interleaved):
                return timing_of(blocks, rules, tuple(timed.suspended), interleaved)


def blocks_in_order(warm: WarmUp, timing: Timing, alongside: Sequence[Sample] = ()) -> list[Sample]:
    """Return all blocks of a warm-up and of the timing after it in the order in which they ran, unused ones
    included."""
    blocks = (*warm.blocks, *warm.suspended, *timing.blocks, *timing.suspended, *timing.aside, *alongside)
    return sorted(blocks, key=lambda block: block.start_s)


def block_of(step: Step, clock: Clock, steps: int, part: str, lead_in_steps: int = 0) -> Sample:
    """Time one block, even if the process is suspended meanwhile."""
    for _ in range(lead_in_steps):
        step()
    start_s = clock.wall_s()
    first = clock.event()
    for _ in range(steps):
        step()
    last = clock.event()
    issued_s = clock.wall_s()
    clock.synchronize()
    end_s = clock.wall_s()
    device_s = _device_s(clock, first, last, steps)
    return Sample(
        part=part,
        steps=steps,
        start_s=start_s,
        wall_s=end_s - start_s,
        device_s=device_s,
        sync_wait_s=None if device_s is None else end_s - issued_s,
    )


def _device_s(clock: Clock, first: Any, last: Any, steps: int) -> float | None:
    """Return the time between two events. Raises Inconsistent where no time passed."""
    device_s = clock.between_s(first, last)
    if device_s is not None and not device_s > 0:
        raise Inconsistent(f"expected device time to pass in {steps} steps, got {device_s} s")
    return device_s


class BlockTimer:
    """Times blocks of one step, and times a block again if the process was suspended in it.

    suspended: the blocks in which it was suspended, in order; they are in no rule and no summary. with_round_trip:
    whether each block has the time of a cache line between two processors.

    * On a device with a clock, a step's time includes no synchronise and no start of an idle queue, like each of many
      steps in a row. Wall time is kept, too. Where the device waits for its host, the gaps are in both times, so that
      they cannot show it; `sync_wait_s` can.
    * Each block begins with `lead_in_steps` untimed steps, so that the first timed step finds a filled queue as the
      later ones do. They begin before `start_s`; the part of them that still runs on the device then is in `wall_s`,
      never in `device_s`.
    * Python's cyclic collector is off inside blocks, as in the standard library's timeit, so that blocks are
      comparable; it runs between blocks, so that cycles cannot fill the memory. Its cost in a real loop is not in the
      step time.
    * Every block is kept, those of the warm-up too, with the counters of `measure/timing/disturbance.py` and on a CPU
      the distance of two processors. `measure_blocks` measures disturbed blocks and those of another placement again
      within the cap, for at most AGAIN_FACTOR times the time so far.
    """

    def __init__(
        self, step: Step, clock: Clock, announce: Announce | None = None, with_round_trip: bool = False
    ) -> None:
        self._step, self._clock, self._announce = step, clock, announce
        self._watch, self._with_round_trip = SuspensionWatch(), with_round_trip
        self._lost_s = 0.0
        self.suspended: list[Sample] = []

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        self._watch.__exit__(*fault)

    def used_s(self) -> float:
        """Return host time without the blocks in which the process was suspended. Limits apply to this time."""
        return self._clock.wall_s() - self._lost_s

    def block(self, steps: int, part: str, lead_in_steps: int = 0) -> Sample:
        """Time one block. Raises Unavailable where the process is suspended in each of several tries."""
        for _ in range(TRIES):
            begun_s = self._clock.wall_s()
            self._watch.was_suspended()
            if self._announce is not None:
                self._announce(steps, part, lead_in_steps)
            before = disturbance()
            block = block_of(self._step, self._clock, steps, part, lead_in_steps)
            block = replace(block, **since(before, disturbance()))
            if self._with_round_trip and block.device_s is None:
                block = replace(block, core_round_trip_s=round_trip())
            if not self._watch.was_suspended():
                return block
            self.suspended.append(replace(block, part=SUSPENDED))
            self._lost_s += self._clock.wall_s() - begun_s
        raise Unavailable(f"the process was suspended in each of {TRIES} tries of a block of {steps} steps")


def steps_for(block_s: float, step_s: float) -> int:
    """Return the number of steps in a block of `block_s`, with 5 % to spare, since step_s is an estimate."""
    return max(1, math.ceil(1.05 * block_s / step_s)) if step_s > 0 else 1


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Stop automatic cyclic collection inside, and freeze existing objects, so that collecting by hand is cheap.

    Afterwards no object is frozen any more, whoever froze it (Python 3.12 freezes a few hundred objects, and does so
    again at its next collection).
    """
    with process.collector_off():
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()


def measure_phases(
    step: Step, clock: Clock, protocol: Protocol, step_s: float, announce: Announce | None = None
) -> list[Sample]:
    """Time the phases of a step, in a separate pass.

    step: takes a `mark` and calls it as each phase begins and with "end" after the last. What runs before the first
    mark (zero_grad) belongs to "optimizer". Returns, for each block of steps, one `Sample` per phase, which add up to
    the whole block. device_s: between events; wall_s: how long the host took to issue the phase (on a CPU: to run it).
    An event at each mark costs the device up to 2 µs, so a headline time is never taken from this pass.
    """
    steps = steps_for(protocol.block_s, step_s)
    blocks: list[Sample] = []
    with collector_off(), SuspensionWatch() as watch:
        origin_s = clock.wall_s()
        for done in range(1, protocol.phase_blocks + 1):
            watch.was_suspended()
            if announce is not None:
                announce(steps, "phase", protocol.lead_in_steps)
            block = phase_block(step, clock, steps, protocol.lead_in_steps)
            blocks += [replace(sample, part=SUSPENDED) for sample in block] if watch.was_suspended() else block
            gc.collect()
            elapsed_s = clock.wall_s() - origin_s
            if elapsed_s + elapsed_s / done > protocol.phase_cap_s:
                break
    return blocks


def measure_stretch(step: Step, clock: Clock, lengths: Sequence[int], pass_name: str) -> list[Sample]:
    """Run the steps of one pass once, from end to end, and time them in consecutive segments of `lengths` steps.

    Nothing waits between two segments: each begins at the event at which the one before ended, so that together they
    are the whole stretch, and the only synchronise belongs to the last one. On a device with a clock a segment's wall
    time is how long the host took to issue it; that of the last one includes the synchronise. Raises Unavailable where
    the process was suspended meanwhile.
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
        device_s = _device_s(clock, start, end, lengths[index])
        waits = index == len(lengths) - 1 and device_s is not None
        blocks.append(
            Sample(
                part="measure",
                steps=lengths[index],
                start_s=from_s,
                wall_s=(end_s if waits else to_s) - from_s,
                device_s=device_s,
                sync_wait_s=end_s - issued_s if waits else None,
                work=pass_name,
            )
        )
    return blocks


def phase_block(step: Step, clock: Clock, steps: int, lead_in_steps: int) -> list[Sample]:
    """Time one block whose phases are timed: a sample for each."""
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
