"""When measuring a step may stop, which of its blocks are used, and what they give: `Timing` and its warnings.

On a CPU, disturbed blocks are measured again: they get the part "disturbed", and the step time is the mean of the
others. Where the others are too few and all blocks together meet the rules, or fewer than three others are left, all
are used. A warning gives both means. Where the distance of two processors falls into two groups, blocks of the
placement that fewer of them had, and those within which it changed, get the part "moved", under the same rules.

Not claimed: the interval says how well *this* process in *this* window knows its mean, not how processes differ.
Stopping when the interval is narrow costs coverage (simulated, a scatter of 1 or 3 %: 0.957 and more for blocks of
autocorrelation up to 0.4, 0.905 and more for 0.6; `benchmarks/paired/stopping.py`).
"""

import typing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from analysis.stats.summary import Summary, summarise, unsteady
from analysis.utilization.step_times import (
    DISTURBED_RATIO,
    PairedCeiling,
    in_one_placement,
    is_disturbed,
    median_round_trip_s,
    waited,
)
from measure.timing.disturbance import DISTURBED, MOVED
from measure.timing.protocols import Protocol
from results.records.cell import Sample

HOST_BOUND_RATIO = 0.05
"""A device that is done within this share of a step when the host starts to wait had caught up with the host."""

CONTENDED_CAP_S = 25.0
"""How long is measured at most where others took the processors: what came so far is what will come, and two cells have
an answer within two minutes."""

LEAST_CALM = 3
"""Undisturbed blocks that show their spread."""


class Interleaved(typing.Protocol):
    """What is timed between the blocks of a step, as a ceiling's kernels are."""

    def warm_up(self) -> None:
        """First calls, which may search algorithms and take memory."""

    def run(self, block_s: float) -> None:
        """Once for each block of the step. block_s: what that block takes, s."""

    def half_width_ratio(self, blocks: Sequence[Sample]) -> float | None:
        """Half of the 95 % interval of the ratio to these blocks; None where it is unknown."""


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


def _half_width_ratio(
    used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, beside: Interleaved | None
) -> float | None:
    """Half of the 95 % interval ÷ mean, if these of the measured blocks are used: of the ratio to what was interleaved
    with them, else of the time of a step."""
    if beside is not None:
        return beside.half_width_ratio((*used, *_aside(measured, used)))
    return _summary(used, protocol).half_width_ratio


def _lacking(used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, beside: Interleaved | None) -> str:
    """What the rules still lack if these of the measured blocks are used; empty if nothing."""
    if len(used) < protocol.min_blocks:
        return f"{len(used)} of at least {protocol.min_blocks} blocks"
    if total_s(used) < protocol.min_time_s:
        return f"{total_s(used):.2f} s of at least {protocol.min_time_s:g} s"
    ratio, target = _half_width_ratio(used, measured, protocol, beside), protocol.target_ci_ratio
    if ratio is not None and ratio <= target:
        return ""
    width = "unknown" if ratio is None else f"±{ratio:.2%}"
    if beside is not None:
        return f"a 95 % interval of {width} of the paired utilization, wider than ±{target:.2%}"
    return f"a 95 % interval of {width}, wider than ±{target:.2%}, from {len(used)} blocks"


def narrowing(
    used: Sequence[Sample],
    measured: Sequence[Sample],
    protocol: Protocol,
    beside: Interleaved | None,
    left_s: float,
) -> str:
    """How wide the interval is after these blocks, where measuring stops, and when at the latest."""
    ratio = _half_width_ratio(used, measured, protocol, beside) if used else None
    width = "" if ratio is None else f"±{100 * ratio:.2g} %, "
    most = f"at most {max(0.0, left_s):.0f} s more"
    return f"block {len(measured)}, {width}stops at ±{100 * protocol.target_ci_ratio:.2g} %, {most}"


def is_narrow(
    used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, beside: Interleaved | None
) -> bool:
    return bool(used) and not _lacking(used, measured, protocol, beside)


def rules_beside_others(blocks: Sequence[Sample], protocol: Protocol) -> Protocol:
    """The protocol; where others took the processors from blocks that the host timed, with a cap of CONTENDED_CAP_S."""
    taken_s = sum((block.run_wait_s or 0.0) + (block.steal_s or 0.0) for block in blocks if block.device_s is None)
    if taken_s < DISTURBED_RATIO * sum(block.wall_s for block in blocks):
        return protocol
    return replace(protocol, cap_s=min(protocol.cap_s, CONTENDED_CAP_S))


def _aside(measured: Sequence[Sample], used: Sequence[Sample]) -> tuple[Sample, ...]:
    """Those of the measured blocks that are not used, with the part that says why."""
    starts = {block.start_s for block in used}
    others = [block for block in measured if block.start_s not in starts]
    return tuple(replace(block, part=DISTURBED if is_disturbed(block) else MOVED) for block in others)


def _summary(blocks: Sequence[Sample], protocol: Protocol) -> Summary:
    times_s, steps = [step_time_s(block) for block in blocks], [block.steps for block in blocks]
    return summarise(times_s, steps, rule=protocol.interval_rule)


def timing_of(
    measured: Sequence[Sample], protocol: Protocol, suspended: tuple[Sample, ...], beside: Interleaved | None
) -> Timing:
    """Sums up the undisturbed blocks of one placement where these are enough; else the undisturbed ones, else all, if
    they are; else of the first of these of which there are LEAST_CALM: a few say more of the step than many that
    waited."""
    calm = [block for block in measured if not is_disturbed(block)]
    choices = (in_one_placement(measured), calm, measured)
    enough = [choice for choice in choices if is_narrow(choice, measured, protocol, beside)]
    blocks = next(iter([*enough, *(choice for choice in choices if len(choice) >= LEAST_CALM)]), measured)
    aside = _aside(measured, blocks)
    summary = _summary(blocks, protocol)
    missing = _lacking(blocks, measured, protocol, beside)
    ratio = host_bound_ratio(blocks, summary.mean)
    cap_s = protocol.cap_with_s(len(measured))
    cap = f"the cap of {cap_s:.3g} s"
    lasted_s = measured[-1].start_s + measured[-1].wall_s - measured[0].start_s
    if len(measured) == protocol.cap_blocks and lasted_s > cap_s:
        cap = f"{len(measured)} blocks, after {cap},"
    return Timing(
        blocks=tuple(blocks),
        summary=summary,
        status="not_converged" if missing else "ok",
        reason=f"stopped at {cap} with {missing}" if missing else "",
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


def disturbance_warning(timing: Timing) -> str:
    """What to say of measured blocks that waited for a processor; empty if none did, or of none it is known.

    A block whose wait is unknown, since a thread ended in it, is taken for one that did not wait. The mean of the other
    blocks beside that of all says what the wait did to the step time. Where all waited, the step without their waits is
    said: a thread that waits delays a step by its wait at most, so that without the neighbour the step takes at least
    that, and at most what was measured; not of a device whose own clock timed it. Not claimed: what neighbours do who
    slow it down without a wait.
    """
    blocks = (*timing.blocks, *timing.aside)
    calm = [block for block in blocks if not waited(block)]
    others = [block for block in calm if block.part != MOVED]
    if len(calm) == len(blocks):
        return ""
    use = "and are not used" if any(block.part == DISTURBED for block in timing.aside) else "and are used"
    counted = f"{DISTURBED}: {len(blocks) - len(calm)} of {len(blocks)} blocks waited for a processor {use}"
    if others:
        return f"{counted}: mean of the others {_mean_ms(others)} ms, of all {_mean_ms(blocks)} ms a step"
    if timing.aside or any(block.device_s is not None for block in blocks):
        return counted
    least_s = total_s(blocks) - sum(block.run_wait_s or 0.0 for block in blocks)
    least = f", {1e3 * least_s / sum(b.steps for b in blocks):.4g} ms without their waits" if least_s > 0 else ""
    return f"{counted}: {_mean_ms(blocks)} ms a step{least}"


def placement_warning(timing: Timing) -> str:
    """What to say of blocks of another placement of the processors; empty if there are none."""
    moved = [block for block in timing.aside if block.part == MOVED]
    if not moved:
        return ""
    trips = [
        "unknown" if (trip_s := median_round_trip_s(group)) is None else f"{1e9 * trip_s:.0f} ns"
        for group in (moved, timing.blocks)
    ]
    return (
        f"{MOVED}: {len(moved)} of {len(moved) + len(timing.blocks)} blocks are not used: the host had moved the "
        f"processors (a cache line took {trips[0]} between them, {trips[1]} in the others): {_mean_ms(moved)} ms a "
        f"step, {_mean_ms(timing.blocks)} ms in the others"
    )


def steadiness_warning(timing: Timing, paired: PairedCeiling | None) -> str:
    """What to say of blocks whose interval may not hold what longer windows give; empty if they show nothing. paired:
    what was timed beside them, whose ratio to them is then looked at."""
    name, values = "step time", [step_time_s(block) for block in timing.blocks]
    if paired is not None:
        rates = next(iter(paired.s_per_flop.values()))
        name, values = "paired utilization", [s / rate for s, rate in zip(paired.step_s, rates, strict=True)]
    shown = unsteady(values)
    return f"unsteady: {shown}: the interval of the {name} may be too narrow" if shown else ""


def _mean_ms(blocks: Sequence[Sample]) -> str:
    return f"{1e3 * total_s(blocks) / sum(block.steps for block in blocks):.4g}"


def total_s(blocks: Sequence[Sample]) -> float:
    """Seconds of all steps of these blocks."""
    return sum(step_time_s(block) * block.steps for block in blocks)
