"""Definition, law, injected fault: followers run what is announced, and the slowest rank's blocks are the step's."""

import dataclasses

import pytest

from measure.timing.blocks import measure_blocks, warm_up
from measure.timing.clocks import clock_for
from measure.timing.rank_blocks import END, BlockOrder, follow_orders, join_blocks
from measure.timing.stopping import CPU_PROTOCOL
from results.errors import Inconsistent
from results.records.cell import Sample


def block(steps: int, start_s: float, wall_s: float, part: str = "measure", phase: str = "") -> Sample:
    return Sample(part=part, phase=phase, steps=steps, start_s=start_s, wall_s=wall_s)


def test_a_follower_runs_the_steps_of_each_order_and_those_that_lead_into_it() -> None:
    calls: list[str] = []
    orders = iter([BlockOrder(1, "warmup"), BlockOrder(3, "measure", 2), BlockOrder(2, "phase", 1), BlockOrder(0, END)])

    def step(mark=None) -> None:
        calls.append("step")
        if mark is not None:
            for phase in ("forward", "loss", "backward", "optimizer", "end"):
                mark(phase)

    blocks = follow_orders(step, clock_for("cpu"), lambda: next(orders))
    assert len(calls) == 1 + (3 + 2) + (2 + 1)
    assert [(each.part, each.steps) for each in blocks if not each.phase] == [("warmup", 1), ("measure", 3)]
    assert {each.phase for each in blocks if each.part == "phase"} == {"forward", "loss", "backward", "optimizer"}


def test_what_the_first_rank_runs_is_what_it_announced() -> None:
    announced: list[tuple[int, str, int]] = []
    ran = [0]

    def step() -> None:
        ran[0] += 1

    protocol = dataclasses.replace(
        CPU_PROTOCOL, block_s=1e-4, min_time_s=1e-3, cap_s=0.05, warm_min_s=1e-3, warm_cap_s=0.01, warm_block_s=1e-4
    )
    clock = clock_for("cpu")

    def announce(steps: int, part: str, lead_in_steps: int) -> None:
        assert ran[0] == sum(steps + led for steps, _, led in announced), "announced before it runs"
        announced.append((steps, part, lead_in_steps))

    warm = warm_up(step, clock, protocol, announce)
    timing = measure_blocks(step, clock, protocol, warm.step_s, announce=announce)
    blocks = [*warm.blocks, *timing.blocks, *timing.aside]
    assert sum(steps for steps, _, _ in announced) == sum(each.steps for each in blocks) == ran[0]


def test_of_each_block_the_slowest_rank_is_taken_where_the_first_ran_it() -> None:
    first = [
        block(2, 0.0, 1.0, "warmup"),
        block(2, 5.0, 4.0),
        block(2, 2.0, 3.0),
        block(1, 9.0, 0.5, "phase", "forward"),
    ]
    other = [
        block(2, 100.0, 2.0, "warmup"),
        block(2, 102.0, 2.5),
        block(2, 105.0, 6.0),
        block(1, 1.0, 9.0, "phase", "x"),
    ]
    found = join_blocks([first, other])[1]
    assert [(each.start_s, each.wall_s, each.part) for each in found] == [
        (0.0, 2.0, "warmup"),
        (2.0, 3.0, "measure"),
        (5.0, 6.0, "measure"),
        (9.0, 0.5, "phase"),
    ]


ASIDE_FIRST = [
    block(2, 0.0, 1.0, "warmup"),
    block(2, 3.0, 4.0),
    block(2, 7.0, 5.0, "disturbed"),
    block(2, 12.0, 4.0),
    block(1, 16.0, 0.5, "phase", "forward"),
]
"""Of the first rank. On the other one the block that is not used took longer."""
ASIDE_OTHER = [
    block(2, 100.0, 1.0, "warmup"),
    block(2, 103.0, 4.5),
    block(2, 107.0, 5.5),
    block(2, 112.0, 3.5),
    block(1, 116.0, 0.5, "phase", "forward"),
]


def test_what_the_first_rank_set_aside_is_set_aside_on_all() -> None:
    first, other = join_blocks([ASIDE_FIRST, ASIDE_OTHER])[0]
    assert first == ASIDE_FIRST
    assert [each.part for each in other] == ["warmup", "measure", "disturbed", "measure", "phase"]
    assert [each.wall_s for each in other] == [each.wall_s for each in ASIDE_OTHER]
    with pytest.raises(Inconsistent, match="blocks of equal steps on all ranks"):
        join_blocks([ASIDE_FIRST, ASIDE_OTHER[1:]])


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_block_in_which_one_rank_was_suspended_is_used_on_none(rank: int) -> None:
    """The others waited for it."""
    ranks = [list(ASIDE_FIRST), list(ASIDE_OTHER), list(ASIDE_OTHER)]
    ranks[rank][1] = dataclasses.replace(ranks[rank][1], part="suspended")
    for found in join_blocks(ranks)[0]:
        assert [each.part for each in found] == ["warmup", "suspended", "disturbed", "measure", "phase"]


def test_a_block_that_the_first_rank_set_aside_keeps_that_ranks_wait() -> None:
    """A gate asks whether it waited for so much of its time: the other rank did not."""
    found = join_blocks([ASIDE_FIRST, ASIDE_OTHER])[1]
    assert [(each.part, each.wall_s) for each in found[:4]] == [
        ("warmup", 1.0), ("measure", 4.5), ("disturbed", 5.0), ("measure", 4.0),
    ]  # fmt: skip


def test_ranks_that_ran_other_blocks_are_refused() -> None:
    with pytest.raises(Inconsistent, match="blocks of equal steps on all ranks"):
        join_blocks([[block(2, 0.0, 1.0)], [block(3, 0.0, 1.0)]])
