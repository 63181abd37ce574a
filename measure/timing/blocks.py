"""Step time by blocks: warm up until steady, measure until the interval is narrow enough, split into phases apart.

The unit of timing is a block: K steps issued without waiting, one event before and one after, one synchronise at the
end. Waiting after every step would put a launch gap into each of them.

* On a device with time of its own, a step's time is the event pair's ÷ K: it holds no synchronise and no start of an
  idle queue, so it is what each of many steps in a row takes. Wall time is kept beside it. The gaps of a device that
  waits for its host are inside both, so the two cannot tell host-bound; `sync_wait_s` can (see `host_bound_ratio`).
* On a CPU a step's time is wall time ÷ K.
* Each block begins with `lead_in_steps` untimed steps, so that the first timed step finds a filled queue as the later
  ones do. They lie before `start_s`; what is left of them on the device is in `wall_s`, never in `device_s`.
* Python's cyclic collector is off inside blocks, as in the standard library's timeit, so that blocks are comparable;
  it runs between blocks, so that cycles cannot fill the memory. Its cost in a real loop is not in the step time.
* Every block is kept, those of the warm-up too.
* What the system says that kept the process from its processors is kept with each block of steps
  (`measure/timing/disturbance.py`). On a CPU, disturbed blocks are measured again: for as long again as the blocks
  altogether needed, where that may be enough, and within the cap. They get the part "disturbed", and the step time is
  the mean of the others. Where the others are too few and all blocks together meet the rules, or fewer than three
  others are left, all are used. A warning gives both means.
* With each block is kept how far two processors were apart then. Where that falls into two groups, blocks of the
  placement that fewer of them had, and those within which it changed, get the part "moved", under the same rules.
* A block in which the process was suspended (`measure/timing/suspension.py`) gets the part "suspended" and is measured
  again; no rule and no summary sees it.

Not claimed: nothing here looks at clocks, heat or other processes; telemetry does. The interval says how well *this*
process in *this* window knows its mean, not how processes differ. Stopping when the interval is narrow costs coverage
(simulated, a scatter of 1 or 3 %: 0.957 and more for blocks of autocorrelation up to 0.4, 0.905 and more for 0.6;
`benchmarks/paired/stopping.py`).

The numbers of the rules, and their sources, are in `protocols.py`.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple, Self

from analysis.stats import Summary, summarise
from analysis.utilization import in_one_placement, is_disturbed, median_round_trip_s, waited
from measure.timing.clocks import Clock, CpuClock, CudaClock, clock_for
from measure.timing.disturbance import DISTURBED, MOVED, core_state, disturbance
from measure.timing.protocols import Protocol
from measure.timing.suspension import SUSPENDED, SuspensionWatch
from results import Inconsistent, Unavailable
from results.records import Sample

__all__ = [
    "Clock",
    "CpuClock",
    "CudaClock",
    "Protocol",
    "Timing",
    "WarmUp",
    "clock_for",
    "measure_blocks",
    "measure_phases",
    "measure_stretch",
    "step_time_s",
    "warm_up",
]

Step = Callable[..., Any]

Announce = Callable[[int, str, int], None]
"""Called before each block with its steps, its part and its lead-in steps: where other ranks must run the same ones
(`measure/timing/rank_blocks.py`). It returns when all are ready."""

HOST_BOUND_RATIO = 0.05
"""A device that is done within this share of a step when the host starts to wait had caught up with the host."""


AGAIN_FACTOR = 2.0
"""How many times as long as all blocks needed is measured at most, so that disturbed ones can be replaced: not at all
where so few are undisturbed that this would not do."""

LEAST_CALM = 3
"""Undisturbed blocks that show their spread."""

TRIES = 5
"""Of a block, before somebody who stops the process again and again is named as the reason."""


class Interleaved(typing.Protocol):
    """What is timed between the blocks of a step, as a ceiling's kernels are."""

    def warm_up(self) -> None:
        """First calls, which may search algorithms and take memory."""

    def run(self, block_s: float) -> None:
        """Once for each block of the step. block_s: what that block takes, s."""

    def half_width_ratio(self, blocks: Sequence[Sample]) -> float | None:
        """Half of the 95 % interval of the ratio to these blocks; None where it is unknown."""


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


@dataclass(frozen=True)
class Timing:
    """What measuring gave. summary: of the blocks' step times, weighted by steps.

    status: ok, or not_converged with a reason. sync_wait_ratio: median wait of a block's synchronise ÷ step time;
    host_bound: that is at most 5 %; both None where there is no device time. suspended: blocks in which the process was
    suspended; aside: blocks that waited for a processor, and those of another placement, which were measured again.
    Nothing else here is made of them.
    """

    blocks: tuple[Sample, ...]
    summary: Summary
    status: str
    reason: str
    sync_wait_ratio: float | None
    host_bound: bool | None
    suspended: tuple[Sample, ...] = ()
    aside: tuple[Sample, ...] = ()

    @property
    def window(self) -> tuple[float, float]:
        """Host time of the first block's start and the last one's end."""
        return self.blocks[0].start_s, self.blocks[-1].start_s + self.blocks[-1].wall_s


def step_time_s(block: Sample) -> float:
    """Seconds a step: device time where there is some, else wall time."""
    return (block.wall_s if block.device_s is None else block.device_s) / block.steps


def warm_up(
    step: Step,
    clock: Clock,
    protocol: Protocol,
    announce: Announce | None = None,
    beside: Interleaved | None = None,
) -> WarmUp:
    """Run steps until two neighbouring blocks agree (see `Protocol`).

    The first block is one step: it may compile, search algorithms and allocate, so it counts towards no limit and
    predicts nothing; a second block always follows. beside: as of `measure_blocks`. It is warmed up after the first
    block: its kernels may take memory that the first step freed, and then the next step takes new memory.
    """
    with BlockTimer(step, clock, announce) as timed:
        blocks = [timed.block(1, "warmup")]
        if beside is not None:
            beside.warm_up()
        origin_s = timed.used_s()
        while True:
            elapsed_s = timed.used_s() - origin_s
            enough = elapsed_s >= protocol.warm_min_s and sum(b.steps for b in blocks) >= protocol.warm_min_steps
            steady = enough and agree(blocks[1:], protocol.warm_tolerance_ratio)
            step_s = step_time_s(blocks[-1])
            steps = steps_for(protocol.warm_block_s, step_s)
            if steady or (len(blocks) > 1 and elapsed_s + steps * step_s > protocol.warm_cap_s):
                return WarmUp(blocks, steady, tuple(timed.suspended))
            blocks.append(timed.block(steps, "warmup"))


def measure_blocks(
    step: Step,
    clock: Clock,
    protocol: Protocol,
    step_s: float | None = None,
    beside: Interleaved | None = None,
    announce: Announce | None = None,
) -> Timing:
    """Time blocks until the protocol's rules are met or its cap is reached.

    step_s: a step's time as the warm-up saw it (`WarmUp.step_s`), from which K follows; None: one untimed step first.
    beside: run once for each block, before the first, after the second, before the third, …: what is to be interleaved
    with them (`measure/timing/ceiling_blocks.py`). The rule for the interval then holds for the ratio to it: a step
    whose machine is slower and faster by turns has no narrow time of its own.
    """
    estimate_s = step_time_s(block_of(step, clock, 1, "warmup")) if step_s is None else step_s
    steps = steps_for(protocol.block_s, estimate_s)
    summarise([1.0, 1.0])  # loads what the interval needs, outside of the timed part
    blocks: list[Sample] = []
    with collector_off(), BlockTimer(step, clock, announce, with_round_trip=announce is None) as timed:
        origin_s = timed.used_s()  # not before what compiling left was collected, which may take a second
        again_s = math.inf
        while True:
            begun_s, is_before = timed.used_s(), len(blocks) % 2 == 0
            if beside is not None and is_before:
                beside.run(steps * (step_time_s(blocks[-1]) if blocks else estimate_s))
            blocks.append(timed.block(steps, "measure", protocol.lead_in_steps))
            if beside is not None and not is_before:
                beside.run(total_s(blocks[-1:]))
            gc.collect()
            steps = _steps_again(blocks[-1], protocol.block_s)
            now_s = timed.used_s()
            best = in_one_placement(blocks)
            if again_s == math.inf and _is_narrow(blocks, blocks, protocol, beside):
                again_s = AGAIN_FACTOR * (now_s - origin_s) if AGAIN_FACTOR * len(best) >= len(blocks) else 0.0
            is_last = (now_s - origin_s) + (now_s - begun_s) > min(protocol.cap_s, again_s)
            if is_last or _is_narrow(best, blocks, protocol, beside):
                return _timing(blocks, protocol, tuple(timed.suspended), beside)


def blocks_in_order(warm: WarmUp, timing: Timing, beside: Sequence[Sample] = ()) -> list[Sample]:
    """The blocks of a warm-up and of what was measured after it as they ran, those that are not used among them."""
    blocks = (*warm.blocks, *warm.suspended, *timing.blocks, *timing.suspended, *timing.aside, *beside)
    return sorted(blocks, key=lambda block: block.start_s)


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


def block_of(step: Step, clock: Clock, steps: int, part: str, lead_in_steps: int = 0) -> Sample:
    """One block, whatever happens to the process meanwhile."""
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
    device_s = clock.between_s(first, last)
    if device_s is not None and not device_s > 0:
        raise Inconsistent(f"expected device time to pass in a block of {steps} steps, got {device_s} s")
    return Sample(
        part=part,
        steps=steps,
        start_s=start_s,
        wall_s=end_s - start_s,
        device_s=device_s,
        sync_wait_s=None if device_s is None else end_s - issued_s,
    )


class BlockTimer:
    """Blocks of one step, each measured again where the process was suspended in it.

    suspended: those that were, in order. with_round_trip: each has the time of a cache line between two processors.
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
        """Host time without that of the blocks in which the process was suspended: what limits apply to."""
        return self._clock.wall_s() - self._lost_s

    def block(self, steps: int, part: str, lead_in_steps: int = 0) -> Sample:
        """One block. Raises Unavailable where the process is suspended in each of several tries."""
        for _ in range(TRIES):
            begun_s = self._clock.wall_s()
            self._watch.was_suspended()
            if self._announce is not None:
                self._announce(steps, part, lead_in_steps)
            before = disturbance()
            block = block_of(self._step, self._clock, steps, part, lead_in_steps)
            found = vars(disturbance().since(before))
            block = replace(
                block, **found, **(vars(core_state(self._with_round_trip)) if block.device_s is None else {})
            )
            if not self._watch.was_suspended():
                return block
            self.suspended.append(replace(block, part=SUSPENDED))
            self._lost_s += self._clock.wall_s() - begun_s
        raise Unavailable(f"the process was suspended in each of {TRIES} tries of a block of {steps} steps")


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


def disturbance_warning(timing: Timing) -> str:
    """What to say of measured blocks that waited for a processor; empty if none did, or of none it is known.

    A block whose wait is unknown, since a thread ended in it, is taken for one that did not wait. The mean of the other
    blocks beside that of all says what the wait did to the step time.
    """
    blocks = (*timing.blocks, *timing.aside)
    calm = [block for block in blocks if not waited(block)]
    others = [block for block in calm if block.part != MOVED]
    if len(calm) == len(blocks):
        return ""
    use = "and are not used" if any(block.part == DISTURBED for block in timing.aside) else "and are used"
    counted = f"{DISTURBED}: {len(blocks) - len(calm)} of {len(blocks)} blocks waited for a processor {use}"
    if not others:
        return counted
    calm_s, all_s = (total_s(each) / sum(b.steps for b in each) for each in (others, blocks))
    return f"{counted}: mean of the others {calm_s * 1e3:.4g} ms, of all {all_s * 1e3:.4g} ms a step"


def placement_warning(timing: Timing) -> str:
    """What to say of blocks of another placement of the processors; empty if there are none."""
    moved = [block for block in timing.aside if block.part == MOVED]
    if not moved:
        return ""
    trips = [
        "unknown" if (trip_s := median_round_trip_s(each)) is None else f"{1e9 * trip_s:.0f} ns"
        for each in (moved, timing.blocks)
    ]
    used_s, moved_s = (total_s(each) / sum(b.steps for b in each) for each in (timing.blocks, moved))
    return (
        f"{MOVED}: {len(moved)} of {len(moved) + len(timing.blocks)} blocks were timed while the processors were "
        f"placed otherwise, or moved (a cache line between them: {trips[0]}, {trips[1]} in the others) and are not "
        f"used: {moved_s * 1e3:.4g} ms, the others {used_s * 1e3:.4g} ms a step"
    )


def total_s(blocks: Sequence[Sample]) -> float:
    """Seconds of all steps of these blocks."""
    return sum(step_time_s(block) * block.steps for block in blocks)


def steps_for(block_s: float, step_s: float) -> int:
    """Steps of a block that lasts `block_s`, with 5 % to spare for an estimate that is a little off."""
    return max(1, math.ceil(1.05 * block_s / step_s)) if step_s > 0 else 1


def _steps_again(block: Sample, block_s: float) -> int:
    """The same number of steps, unless the block was too short or much too long (2.5 times)."""
    lasted_s = step_time_s(block) * block.steps
    return block.steps if block_s <= lasted_s <= 2.5 * block_s else steps_for(block_s, step_time_s(block))


def agree(blocks: Sequence[Sample], tolerance_ratio: float) -> bool:
    if len(blocks) < 2:
        return False
    before_s, after_s = step_time_s(blocks[-2]), step_time_s(blocks[-1])
    return abs(after_s / before_s - 1) <= tolerance_ratio


def _too_few(blocks: Sequence[Sample], protocol: Protocol) -> str:
    if len(blocks) < protocol.min_blocks:
        return f"{len(blocks)} of at least {protocol.min_blocks} blocks"
    measured_s = total_s(blocks)
    if measured_s < protocol.min_time_s:
        return f"{measured_s:.2f} s of at least {protocol.min_time_s:g} s"
    return ""


def shortfall(blocks: Sequence[Sample], summary: Summary, protocol: Protocol) -> str:
    """What the stopping rule for the time of a step still lacks; empty if nothing."""
    if few := _too_few(blocks, protocol):
        return few
    ratio = summary.half_width_ratio
    if ratio is None or ratio > protocol.target_ci_ratio:
        width = "unknown" if ratio is None else f"±{ratio:.2%}"
        return f"a 95 % interval of {width}, wider than ±{protocol.target_ci_ratio:.2%}, from {len(blocks)} blocks"
    return ""


def _lacking(used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, beside: Interleaved | None) -> str:
    """What the rules still lack if these of the measured blocks are used; empty if nothing. Where something was
    interleaved with them, the ratio to it must be narrow, else the time of a step."""
    if beside is None:
        return shortfall(used, _summary(used, protocol), protocol)
    if few := _too_few(used, protocol):
        return few
    ratio = beside.half_width_ratio((*used, *_aside(measured, used)))
    if ratio is not None and ratio <= protocol.target_ci_ratio:
        return ""
    width = "unknown" if ratio is None else f"±{ratio:.2%}"
    return f"a 95 % interval of {width} of the paired utilization, wider than ±{protocol.target_ci_ratio:.2%}"


def _is_narrow(
    used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, beside: Interleaved | None
) -> bool:
    return bool(used) and not _lacking(used, measured, protocol, beside)


def _aside(measured: Sequence[Sample], used: Sequence[Sample]) -> tuple[Sample, ...]:
    """Those of the measured blocks that are not used, with the part that says why."""
    kept = {block.start_s for block in used}
    others = [block for block in measured if block.start_s not in kept]
    return tuple(replace(block, part=DISTURBED if is_disturbed(block) else MOVED) for block in others)


def _summary(blocks: Sequence[Sample], protocol: Protocol) -> Summary:
    times_s, steps = [step_time_s(block) for block in blocks], [block.steps for block in blocks]
    return summarise(times_s, steps, rule=protocol.interval_rule)


def _timing(
    measured: Sequence[Sample], protocol: Protocol, suspended: tuple[Sample, ...], beside: Interleaved | None
) -> Timing:
    """Of the undisturbed blocks of one placement where these are enough; else of the undisturbed ones, else of all, if
    they are; else of the first of these of which there are LEAST_CALM: a few say more of the step than many that
    waited."""
    calm = [block for block in measured if not is_disturbed(block)]
    choices = (in_one_placement(measured), calm, measured)
    enough = [each for each in choices if _is_narrow(each, measured, protocol, beside)]
    blocks = next(iter([*enough, *(each for each in choices if len(each) >= LEAST_CALM)]), measured)
    aside = _aside(measured, blocks)
    summary = _summary(blocks, protocol)
    missing = _lacking(blocks, measured, protocol, beside)
    ratio = host_bound_ratio(blocks, summary.mean)
    return Timing(
        blocks=tuple(blocks),
        summary=summary,
        status="not_converged" if missing else "ok",
        reason=f"stopped at the cap of {protocol.cap_s:.3g} s with {missing}" if missing else "",
        sync_wait_ratio=ratio,
        host_bound=None if ratio is None else ratio <= HOST_BOUND_RATIO,
        suspended=suspended,
        aside=aside,
    )


def host_bound_ratio(blocks: Sequence[Sample], step_s: float) -> float | None:
    """Median wait of the blocks' synchronise ÷ step time; None without device time.

    A host that runs ahead leaves the device a queue to work off, and waits long; a device that had caught up is done
    at once. A step that synchronises inside (a gradient scaler reads its overflow flag) looks host-bound, and is.
    """
    waits = [b.sync_wait_s for b in blocks if b.sync_wait_s is not None]
    return median(waits) / step_s if waits else None


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """No cyclic collection by itself inside; what exists already is set aside, so that collecting by hand is cheap.

    Afterwards nothing is set aside any more, whoever had done so (Python 3.12 does for a few hundred objects, and
    does so again at its next collection).
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
