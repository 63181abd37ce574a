"""Interleaved blocks of two steps in one process: rounds of A B B A until the ratio's interval is narrow enough.

The rules are a cell's (`protocols.py`): both steps warm up first, outside of the time; at least `min_blocks` rounds and
`min_time_s`, until the interval is within `target_ci_ratio` of the ratio, at most `cap_s`. A block is one step at
least. Blocks of one step follow blocks of the other: each has a lead-in step, so that the first timed one finds the
caches of its own.

Not claimed: that a step interleaved with another takes what it takes alone: they share caches, allocator and clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from analysis.stats import PairedRatio, paired_ratio
from measure.timing.blocks import BlockTimer, collector_off, steps_for, warm_up
from measure.timing.clocks import Clock
from measure.timing.protocols import Protocol
from measure.timing.stopping import step_time_s

Step = Callable[..., Any]

LEAD_IN_STEPS = 1
LEAST_ROUNDS = 6
"""Fewer cannot show whether neighbours are correlated, and the interval is as wide as if they were."""


@dataclass(frozen=True)
class PairTiming:
    """Mean step times of A and B, s, and A's ÷ B's. status: ok, or not_converged with a reason."""

    a_step_s: float
    b_step_s: float
    ratio: PairedRatio
    status: str
    reason: str


def measure_pairs(a: Step, b: Step, clock: Clock, protocol: Protocol) -> PairTiming:
    """Warm up both steps and time interleaved blocks. Raises Unavailable where the process is suspended repeatedly."""
    steps = [steps_for(protocol.block_s, warm_up(step, clock, protocol).step_s) for step in (a, b)]
    rounds: list[tuple[float, float]] = []
    with collector_off(), BlockTimer(a, clock) as first, BlockTimer(b, clock) as second:
        order = ((first, 0), (second, 1), (second, 1), (first, 0))
        origin_s = clock.wall_s()
        while True:
            times = [0.0, 0.0]
            for timer, place in order:
                times[place] += step_time_s(timer.block(steps[place], "measure", LEAD_IN_STEPS)) / 2
            rounds.append((times[0], times[1]))
            elapsed_s = clock.wall_s() - origin_s
            found = paired_ratio(rounds)
            reason = _shortfall(found, elapsed_s, protocol)
            if not reason or (elapsed_s * (1 + 1 / len(rounds)) > protocol.cap_s and len(rounds) > 1):
                break
    means = [sum(each[place] for each in rounds) / len(rounds) for place in (0, 1)]
    return PairTiming(means[0], means[1], found, "not_converged" if reason else "ok", reason)


def _shortfall(ratio: PairedRatio, elapsed_s: float, protocol: Protocol) -> str:
    """What the rules still lack; empty where they are met."""
    least = max(protocol.min_blocks, LEAST_ROUNDS)
    if ratio.rounds < least or elapsed_s < protocol.min_time_s:
        return f"{ratio.rounds} rounds of {least} in {elapsed_s:.3g} s of {protocol.min_time_s:g} s"
    if ratio.half_width > protocol.target_ci_ratio:
        return f"interval of ±{ratio.half_width:.2%}, {protocol.target_ci_ratio:.2%} asked for"
    return ""
