"""The rules by which one cell is warmed up, measured and stopped: numbers only, one set for each kind of device.

CUDA: blocks of at least 200 ms, at least 10 of them and 5 s, until the 95 % interval is within 0.5 % of the mean, at
most 60 s; before that at least 10 steps and 3 s, until two blocks of 0.5 s agree within 1 %.
CPU: at least 5 blocks and 2 s, within 3 %, at most 60 s; before that 2 steps and 1 s, within 5 %. A block is never less
than one step, so that a step of several seconds costs a few steps, not many minutes. 60 s hold eight steps of 7 s, and
their interval is wide because they are few: while there are fewer than 12 blocks, the cap is 120 s.

Sources: a block long enough to hide the clock's own resolution, a relative interval as criterion, and a cap after which
the result is kept and called not converged, as in NVBench (its stdrel criterion and timeout) and pyperf (calibrated
loops of 100 ms); steady state before measuring: Georges et al., "Statistically Rigorous Java Performance Evaluation",
OOPSLA 2007. The numbers themselves are this project's choice. Not claimed: that they suit a device nobody has tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from analysis.stats.summary import BATCHES


@dataclass(frozen=True)
class Protocol:
    """The rules of one cell. Seconds, counts and ratios; `for_device` has the values in use.

    block_s: shortest block. min_blocks, min_time_s: least that is measured. cap_s: most, untimed parts included; up to
    CAP_FACTOR times that while there are fewer than cap_blocks.
    target_ci_ratio: half width of the 95 % interval ÷ mean at which measuring stops. interval_rule: how that interval
    is made (`analysis.stats.summary.INTERVAL_RULES`).
    warm_*: at least `warm_min_steps` and `warm_min_s`, then until two neighbouring blocks of `warm_block_s` differ by
    no more than `warm_tolerance_ratio`; at most `warm_cap_s`, counted after the first step (which may compile).
    phase_*: blocks of the separate pass that splits a step.
    works: what else is measured of a cell (`WORKS`), each in a pass of its own (see `for_pass`).
    epoch_cap_s: an epoch that is expected to last less is run from end to end; never divided, as it is no accuracy.
    profile_cap_s: timed steps of one work under a profiler.
    limit_s: after which the cell is killed; a pass that would not end before that is left out.
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
    works: tuple[str, ...] = ()
    epoch_cap_s: float = 20.0
    profile_cap_s: float = 2.0
    limit_s: float = math.inf
    interval_rule: str = BATCHES

    def cap_with_s(self, blocks: int) -> float:
        """The cap where so many blocks were measured, s."""
        return self.cap_s * (CAP_FACTOR if blocks < self.cap_blocks else 1)

    @property
    def longest_s(self) -> float:
        """The caps together. A cell takes no longer, but for two steps before the warm-up's cap is asked, and where a
        single block is longer than a cap, or cap_blocks are longer than cap_s."""
        own_s = self.warm_cap_s + self.cap_s + self.phase_cap_s
        timed = sum(work in TIMED_WORKS for work in self.works)
        profiled_s = self.profile_cap_s * sum(work != "epoch" for work in self.works)
        epoch_s = self.epoch_cap_s if "epoch" in self.works else 0.0
        return own_s + (timed * self.for_pass().longest_s if timed else 0.0) + profiled_s + epoch_s

    @property
    def least_s(self) -> float:
        """What a cell takes at least, if everything settles at once; profiles and epochs, which may be short, apart."""
        timed = sum(work in TIMED_WORKS for work in self.works)
        passed = self.for_pass()
        return self.warm_min_s + self.min_time_s + timed * (passed.warm_min_s + passed.min_time_s)

    def for_pass(self) -> Protocol:
        """Gives the rules for another work of a cell that has just been measured: the device is warm, the process has
        loaded what it needs. A third of the time for warming up, a third of the caps, none of them longer for few
        blocks, no phases."""
        share = 1 / PASS_DIVISOR
        shorter = {name: getattr(self, name) * share for name in ("warm_min_s", "warm_cap_s", "cap_s")}
        return replace(self, **shorter, cap_blocks=0, phase_blocks=0, phase_cap_s=0.0, works=())

    @classmethod
    def for_device(
        cls,
        device: str,
        quick: bool = False,
        target_ci_ratio: float | None = None,
        time_left_s: float | None = None,
        works: tuple[str, ...] = (),
    ) -> Protocol:
        """The protocol of a device ("cpu", "cuda", "cuda:1").

        quick: times ÷ 5 and fewer blocks. target_ci_ratio: None is 0.5 % on CUDA and 3 % on a CPU, where a step of a
        small network varies by 11 % and 0.5 % would never come. time_left_s: caps shrink to fit into it, minimum
        counts do not: a cell that cannot reach them is not_converged. works: as the fields say.
        """
        protocol = replace(CUDA_PROTOCOL if device.startswith("cuda") else CPU_PROTOCOL, works=works)
        if target_ci_ratio is not None:
            protocol = replace(protocol, target_ci_ratio=target_ci_ratio)
        if quick:
            protocol = _quick(protocol)
        if time_left_s is not None:
            share = min(1.0, time_left_s / protocol.longest_s)
            cap_blocks = protocol.cap_blocks if share == 1 else 0
            protocol = replace(
                protocol, cap_blocks=cap_blocks, **{name: getattr(protocol, name) * share for name in _CAPS}
            )
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
CAP_FACTOR = 2
"""cap_s is extended by this factor while there are fewer than cap_blocks blocks."""

QUICK_DIVISOR = 5
PASS_DIVISOR = 3

TIMED_WORKS = ("one", "last")
"""Works that are warmed up and timed beside the cell's own; an epoch's time follows from them, or it is run once."""

_CAPS = ("cap_s", "warm_cap_s", "phase_cap_s", "epoch_cap_s", "profile_cap_s")
_NOT_QUICKER = ("epoch_cap_s", "limit_s")


def _quick(protocol: Protocol) -> Protocol:
    """Times ÷ 5; half of the counts, but three blocks at least: two cannot show their spread."""
    names = [f.name for f in fields(protocol) if f.name.endswith("_s") and f.name not in _NOT_QUICKER]
    times = {name: getattr(protocol, name) / QUICK_DIVISOR for name in names}
    return replace(
        replace(protocol, **times),
        min_blocks=max(3, protocol.min_blocks // 2),
        cap_blocks=0,
        phase_blocks=max(2, protocol.phase_blocks // 2),
        warm_min_steps=max(2, protocol.warm_min_steps // 2),
    )
