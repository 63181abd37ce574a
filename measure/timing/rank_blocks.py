"""Blocks of a step that several ranks run together: one rank decides, the others run what it announces.

How long to warm up, how many steps a block has and when to stop follow from times, which differ from rank to rank; if
each decided for itself, they would wait in collectives for each other for ever. So the first rank decides (`warm_up`,
`measure_blocks`, `measure_phases` with `announce`), and tells the others before each block.

Not claimed: that ranks begin a block at one moment. They leave one barrier, which is some tens of microseconds.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.utilization.step_times import ASIDE
from measure.timing.blocks import Step, block_of, collector_off, phase_block
from measure.timing.clocks import Clock
from measure.timing.disturbance import SUSPENDED, SuspensionWatch, disturbance
from measure.timing.stopping import step_time_s
from results.errors import Inconsistent
from results.records.cell import Sample

END = "end"
"""The part of the last order."""


@dataclass(frozen=True)
class BlockOrder:
    """A block that is to be run now; of no steps where there are no more."""

    steps: int
    part: str
    lead_in_steps: int = 0


def follow_orders(step: Step, clock: Clock, order: Callable[[], BlockOrder]) -> list[Sample]:
    """Run each block that is ordered, until the order to end; what they took on this rank, in order.

    order: waits for the next one. A block in which this process was suspended has the part "suspended".
    """
    blocks: list[Sample] = []
    with collector_off(), SuspensionWatch() as watch:
        while (asked := order()).part != END:
            watch.was_suspended()
            before = disturbance()
            if asked.part == "phase":
                found = phase_block(step, clock, asked.steps, asked.lead_in_steps)
            else:
                block = block_of(step, clock, asked.steps, asked.part, asked.lead_in_steps)
                found = [replace(block, **vars(disturbance().since(before)))]
            blocks += [replace(each, part=SUSPENDED) for each in found] if watch.was_suspended() else found
            gc.collect()
    return blocks


def slowest_blocks(first: Sequence[Sample], others: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Of each block of whole steps that of the rank that took longest, when and as what the first rank ran it; phases
    are the first rank's, and so are blocks that it set aside, whose waits are its own. A block in which any rank was
    suspended is not to be used.

    first: of the rank that decides, in any order; others: of each other rank, as they ran. Raises Inconsistent where
    their numbers of steps differ.
    """
    own, beside = _whole_steps(first, others)
    slowest = []
    for place, block in enumerate(own):
        peers = [block, *(blocks[place] for blocks in beside)]
        longest = block if block.part in ASIDE else max(peers, key=step_time_s)
        part = SUSPENDED if any(peer.part == SUSPENDED for peer in peers) else block.part
        slowest.append(replace(longest, part=part, start_s=block.start_s))
    return [*slowest, *(block for block in first if block.phase)]


def agreed_blocks(ranks: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
    """The blocks of each rank, those of whole steps with a part that all ranks agree on: "suspended" where any rank was
    suspended, since the others waited for it, and "disturbed" or "moved" where the first rank set it aside.

    ranks: the first one's blocks, in any order, then each other rank's, as they ran. Raises Inconsistent as
    `slowest_blocks` does.
    """
    own, beside = _whole_steps(ranks[0], ranks[1:])
    parts: dict[int, str] = {}
    for blocks in zip(own, *beside, strict=True):
        stopped = any(block.part == SUSPENDED for block in blocks)
        if stopped or blocks[0].part in ASIDE:
            parts |= {id(block): SUSPENDED if stopped else blocks[0].part for block in blocks}
    return [[replace(each, part=parts.get(id(each), each.part)) for each in blocks] for blocks in ranks]


def _whole_steps(
    first: Sequence[Sample], others: Sequence[Sequence[Sample]]
) -> tuple[list[Sample], list[list[Sample]]]:
    """The blocks of whole steps as they ran. Raises Inconsistent where other ranks ran others."""
    own = sorted((block for block in first if not block.phase), key=lambda block: block.start_s)
    beside = [[block for block in blocks if not block.phase] for blocks in others]
    for blocks in beside:
        if [block.steps for block in blocks] != [block.steps for block in own]:
            raise Inconsistent(f"expected {len(own)} blocks of equal steps on all ranks, got {len(blocks)} on another")
    return own, beside
