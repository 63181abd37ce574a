"""Decides when measuring a step may stop and which of its blocks are used.

`is_narrow` takes blocks and a `Protocol` (`for_device` returns a device's rules). `timing_of` returns the `Timing`, and
functions named `…_warning` return text. On a CPU, disturbed blocks are measured again and get the part "disturbed". The
step time is the mean of the others, or of all if the others are too few; a warning gives both means. If the round trips
between two processors fall into two groups, blocks of the rarer group, and blocks in which the group changed, get the
part "moved".
Limits: the interval covers the mean of this process in this window, not differences between processes. Stopping when
the interval is narrow costs coverage (`benchmarks/paired/stopping.py`). In simulation, with a scatter of 1 or 3 %,
coverage is at least 0.957 for autocorrelation of blocks up to 0.4, and 0.905 for 0.6.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median

from analysis.stats.summary import BATCHES, Summary, summarise, unsteady
from analysis.utilization.step_times import (
    DISTURBED_RATIO,
    PairedCeiling,
    in_one_placement,
    is_disturbed,
    median_round_trip_s,
    waited,
)
from measure.timing.disturbance import DISTURBED, MOVED
from results.records.cell import Sample


@dataclass(frozen=True)
class Protocol:
    """The rules of one cell: seconds, counts and ratios. `for_device` returns the values in use.

    block_s: shortest block. min_blocks, min_time_s: least number of blocks and least time. cap_s: longest time, untimed
    parts included; up to CAP_FACTOR times that while there are fewer than cap_blocks.
    target_ci_ratio: half width of the 95 % interval ÷ mean at which measuring stops. interval_rule: the rule of that
    interval (`analysis.stats.summary.INTERVAL_RULES`).
    warm_*: warm up at least `warm_min_steps` and `warm_min_s`, then until two neighbouring blocks of `warm_block_s`
    differ by no more than `warm_tolerance_ratio`; at most `warm_cap_s`, counted after the first step (which may
    compile).
    phase_*: blocks of the separate pass that splits a step.
    passes: the other passes of a cell (`PASSES`), each timed separately (see `for_pass`).
    epoch_cap_s: an epoch that is expected to last less is run from end to end; `quick` does not shorten it.
    profile_cap_s: timed steps of one pass under a profiler.
    limit_s: time after which the cell is killed; a pass that would not end before that is left out.
    """

    target_ci_ratio: float
    block_s: float
    min_blocks: int
    min_time_s: float
    cap_s: float
    warm_block_s: float
    warm_min_steps: int
    warm_min_s: float
    warm_cap_s: float
    warm_tolerance_ratio: float
    phase_blocks: int
    phase_cap_s: float
    lead_in_steps: int
    cap_blocks: int = 12
    passes: tuple[str, ...] = ()
    epoch_cap_s: float = 20.0
    profile_cap_s: float = 2.0
    limit_s: float = math.inf
    interval_rule: str = BATCHES

    def cap_with_s(self, blocks: int) -> float:
        """Return the cap in s after this number of blocks."""
        return self.cap_s * (CAP_FACTOR if blocks < self.cap_blocks else 1)

    @property
    def longest_s(self) -> float:
        """The sum of the caps in s. A cell takes longer only by two steps before the warm-up's cap is checked, and if a
        single block is longer than a cap, or cap_blocks blocks are longer than cap_s."""
        untimed_s = sum(self.epoch_cap_s if name == "epoch" else self.profile_cap_s for name in self.passes)
        timed = sum(name in TIMED_PASSES for name in self.passes)
        passes_s = timed * self.for_pass().longest_s if timed else 0.0
        return self.warm_cap_s + self.cap_s + self.phase_cap_s + passes_s + untimed_s

    @property
    def least_s(self) -> float:
        """The least time of a cell in s, if everything settles at once; without profiles and epochs, which may be
        short."""
        timed = sum(name in TIMED_PASSES for name in self.passes)
        passed = self.for_pass()
        return self.warm_min_s + self.min_time_s + timed * (passed.warm_min_s + passed.min_time_s)

    def for_pass(self) -> Protocol:
        """Return the rules for another pass of a cell that has just been measured, so that the device is warm and
        libraries are loaded: a third of the times for warming up and of the cap, no extension of the cap for few
        blocks, no phases."""
        share = 1 / 3
        shorter = {name: getattr(self, name) * share for name in ("warm_min_s", "warm_cap_s", "cap_s")}
        return replace(self, **shorter, cap_blocks=0, phase_blocks=0, phase_cap_s=0.0, passes=())

    @classmethod
    def for_device(
        cls,
        device: str,
        quick: bool = False,
        target_ci_ratio: float | None = None,
        time_left_s: float | None = None,
        passes: tuple[str, ...] = (),
    ) -> Protocol:
        """Return the protocol of a device ("cpu", "cuda", "cuda:1").

        quick: times ÷ 5 and fewer blocks. target_ci_ratio: None is 0.5 % on CUDA and 3 % on a CPU, where a step of a
        small network varies by 11 % and 0.5 % would never be reached. time_left_s: caps shrink to fit into it, but not
        the minimum counts and times: a cell that cannot reach them is not_converged. passes: the field.
        """
        protocol = replace(CUDA_PROTOCOL if device.startswith("cuda") else CPU_PROTOCOL, passes=passes)
        if target_ci_ratio is not None:
            protocol = replace(protocol, target_ci_ratio=target_ci_ratio)
        if quick:
            names = [f.name for f in fields(protocol) if f.name.endswith("_s") and f.name not in _NOT_QUICKER]
            protocol = replace(
                protocol,
                **{name: getattr(protocol, name) / 5 for name in names},
                min_blocks=max(3, protocol.min_blocks // 2),  # two cannot show their spread
                cap_blocks=0,
                phase_blocks=max(2, protocol.phase_blocks // 2),
                warm_min_steps=max(2, protocol.warm_min_steps // 2),
            )
        if time_left_s is not None and time_left_s < protocol.longest_s:
            share = time_left_s / protocol.longest_s
            caps = {name: getattr(protocol, name) * share for name in _CAPS}
            protocol = replace(protocol, cap_blocks=0, **caps)
        return protocol


CUDA_PROTOCOL = Protocol(
    target_ci_ratio=0.005,
    block_s=0.2,
    min_blocks=10,
    min_time_s=5.0,
    cap_s=60.0,
    warm_block_s=0.5,
    warm_min_steps=10,
    warm_min_s=3.0,
    warm_cap_s=20.0,
    warm_tolerance_ratio=0.01,
    phase_blocks=5,
    phase_cap_s=5.0,
    lead_in_steps=1,
)
CPU_PROTOCOL = Protocol(
    target_ci_ratio=0.03,
    block_s=0.2,
    min_blocks=5,
    min_time_s=2.0,
    cap_s=60.0,
    warm_block_s=0.5,
    warm_min_steps=2,
    warm_min_s=1.0,
    warm_cap_s=5.0,
    warm_tolerance_ratio=0.05,
    phase_blocks=3,
    phase_cap_s=5.0,
    lead_in_steps=0,
)
"""The rules in use. CUDA: blocks of at least 200 ms, at least 10 of them and 5 s, until the 95 % interval is within 0.5
% of the mean, at most 60 s; before that at least 10 steps and 3 s, until two blocks of 0.5 s agree within 1 %. CPU: at
least 5 blocks and 2 s, within 3 %, at most 60 s; before that 2 steps and 1 s, within 5 %. A block is at least one step.
60 s hold eight steps of 7 s, whose interval is wide because they are few: below 12 blocks the cap is 120 s. Sources: a
block long enough to hide the clock's resolution, a relative interval as criterion, and a cap after which the result is
kept and called not converged, as in NVBench (its stdrel criterion and timeout) and pyperf (calibrated loops of 100 ms);
steady state before measuring: Georges et al., "Statistically Rigorous Java Performance Evaluation", OOPSLA 2007. The
numbers themselves are this project's choice."""
CAP_FACTOR = 2
"""cap_s is extended by this factor while there are fewer than cap_blocks blocks."""

TIMED_PASSES = ("one", "last")
"""Passes that are warmed up and timed in addition to the cell's own; an epoch's time follows from them, or it is run
once."""

_CAPS = ("cap_s", "warm_cap_s", "phase_cap_s", "epoch_cap_s", "profile_cap_s")
_NOT_QUICKER = ("epoch_cap_s", "limit_s")

HOST_BOUND_RATIO = 0.05
"""If the host's last wait for the device takes at most this share of a step, the device had caught up with the host."""

CONTENDED_CAP_S = 25.0
"""Cap of measuring in s where other processes took the processors: more time would not narrow the interval, and so two
cells have an answer within two minutes."""

LEAST_CALM = 3
"""Minimum number of undisturbed blocks that show their spread."""


class Interleaved(typing.Protocol):
    """Something that is timed between the blocks of a step, such as a ceiling's kernels."""

    def warm_up(self) -> None:
        """Run first calls, which may search algorithms and take memory."""

    def run(self, block_s: float) -> None:
        """Run once for each block of the step. block_s: time of that block in s."""

    def half_width_ratio(self, blocks: Sequence[Sample]) -> float | None:
        """Return half of the 95 % interval of the ratio to these blocks; None where it is unknown."""


@dataclass(frozen=True)
class Timing:
    """The result of measuring. summary: of the blocks' step times, weighted by steps.

    status: ok, or not_converged with a reason. sync_wait_ratio: median wait of a block's synchronise ÷ step time;
    host_bound: that is at most 5 %; both None where there is no device time. suspended: blocks in which the process was
    suspended; aside: blocks that waited for a processor, and those of another placement, which were measured again.
    Neither is used for anything else here.
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
        """Host time in s of the first block's start and of the last block's end."""
        return self.blocks[0].start_s, self.blocks[-1].start_s + self.blocks[-1].wall_s


def step_time_s(block: Sample) -> float:
    """Return seconds a step: device time where there is some, else wall time."""
    return (block.wall_s if block.device_s is None else block.device_s) / block.steps


def _half_width_ratio(
    used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, interleaved: Interleaved | None
) -> float | None:
    """Return half of the 95 % interval ÷ mean if only these of the measured blocks are used: of the ratio to the
    interleaved kernels, or without these of the step time."""
    if interleaved is not None:
        return interleaved.half_width_ratio((*used, *_aside(measured, used)))
    return _summary(used, protocol).half_width_ratio


def _lacking(
    used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, interleaved: Interleaved | None
) -> str:
    """Return the first rule that is unmet if only these of the measured blocks are used; "" if all are met."""
    if len(used) < protocol.min_blocks:
        return f"{len(used)} of at least {protocol.min_blocks} blocks"
    if total_s(used) < protocol.min_time_s:
        return f"{total_s(used):.2f} s of at least {protocol.min_time_s:g} s"
    ratio, target = _half_width_ratio(used, measured, protocol, interleaved), protocol.target_ci_ratio
    if ratio is not None and ratio <= target:
        return ""
    width = "unknown" if ratio is None else f"±{ratio:.2%}"
    if interleaved is not None:
        return f"a 95 % interval of {width} of the paired utilization, wider than ±{target:.2%}"
    return f"a 95 % interval of {width}, wider than ±{target:.2%}, from {len(used)} blocks"


def narrowing(
    used: Sequence[Sample],
    measured: Sequence[Sample],
    protocol: Protocol,
    interleaved: Interleaved | None,
    left_s: float,
) -> str:
    """Return how wide the interval is after these blocks, at which width measuring stops, and when at the latest."""
    ratio = _half_width_ratio(used, measured, protocol, interleaved) if used else None
    width = "" if ratio is None else f"±{100 * ratio:.2g} %, "
    most = f"at most {max(0.0, left_s):.0f} s more"
    return f"block {len(measured)}, {width}stops at ±{100 * protocol.target_ci_ratio:.2g} %, {most}"


def is_narrow(
    used: Sequence[Sample], measured: Sequence[Sample], protocol: Protocol, interleaved: Interleaved | None
) -> bool:
    """Return whether measuring may stop if only these of the measured blocks are used."""
    return bool(used) and not _lacking(used, measured, protocol, interleaved)


def contended_rules(blocks: Sequence[Sample], protocol: Protocol) -> Protocol:
    """Return the protocol; where others took the processors from blocks that the host timed, with a cap of
    CONTENDED_CAP_S."""
    taken_s = sum((block.run_wait_s or 0.0) + (block.steal_s or 0.0) for block in blocks if block.device_s is None)
    if taken_s < DISTURBED_RATIO * sum(block.wall_s for block in blocks):
        return protocol
    return replace(protocol, cap_s=min(protocol.cap_s, CONTENDED_CAP_S))


def _aside(measured: Sequence[Sample], used: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return those of the measured blocks that are not used, with the part that says why."""
    starts = {block.start_s for block in used}
    others = [block for block in measured if block.start_s not in starts]
    return tuple(replace(block, part=DISTURBED if is_disturbed(block) else MOVED) for block in others)


def _summary(blocks: Sequence[Sample], protocol: Protocol) -> Summary:
    times_s, steps = [step_time_s(block) for block in blocks], [block.steps for block in blocks]
    return summarise(times_s, steps, rule=protocol.interval_rule)


def timing_of(
    measured: Sequence[Sample], protocol: Protocol, suspended: tuple[Sample, ...], interleaved: Interleaved | None
) -> Timing:
    """Sum up the first of these choices that meets the rules: undisturbed blocks of one placement, undisturbed blocks,
    all blocks. If none does, take the first choice with at least LEAST_CALM blocks: a few undisturbed blocks say more
    about the step than many that waited."""
    calm = [block for block in measured if not is_disturbed(block)]
    choices = (in_one_placement(measured), calm, measured)
    enough = [choice for choice in choices if is_narrow(choice, measured, protocol, interleaved)]
    blocks = next(iter([*enough, *(choice for choice in choices if len(choice) >= LEAST_CALM)]), measured)
    aside = _aside(measured, blocks)
    summary = _summary(blocks, protocol)
    missing = _lacking(blocks, measured, protocol, interleaved)
    # A host that runs ahead leaves the device a queue to work off, and waits long; a device that had caught up is done
    # at once. A step that synchronises inside (a gradient scaler reads its overflow flag) looks host-bound, and is.
    waits = [block.sync_wait_s for block in blocks if block.sync_wait_s is not None]
    ratio = median(waits) / summary.mean if waits else None
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


def disturbance_warning(timing: Timing) -> str:
    """Return a warning on measured blocks that waited for a processor; empty if no block is known to have waited.

    A block whose wait is unknown, since a thread ended in it, is taken for one that did not wait. The warning compares
    the mean of the other blocks with that of all. If all waited, and the host's clock timed them, it has the step time
    less the waits: a waiting thread delays a step by its wait at most, so that the undisturbed step takes at least this
    time, and at most the measured time. Not claimed: the effect of neighbours that slow the step down without a wait.
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
    """Return a warning on blocks of another placement of the processors; empty if there are none."""
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
    """Return a warning on blocks whose interval may not cover the mean of longer windows; empty if they do not show it.
    paired: the paired kernels, whose ratio to the blocks is then tested instead of the step time."""
    name, values = "step time", [step_time_s(block) for block in timing.blocks]
    if paired is not None:
        rates = next(iter(paired.s_per_flop.values()))
        name, values = "paired utilization", [s / rate for s, rate in zip(paired.step_s, rates, strict=True)]
    shown = unsteady(values)
    return f"unsteady: {shown}: the interval of the {name} may be too narrow" if shown else ""


def _mean_ms(blocks: Sequence[Sample]) -> str:
    return f"{1e3 * total_s(blocks) / sum(block.steps for block in blocks):.4g}"


def total_s(blocks: Sequence[Sample]) -> float:
    """Return seconds of all steps of these blocks."""
    return sum(step_time_s(block) * block.steps for block in blocks)
