"""How many steps a block of a CPU has: what a gate works out again, compared with the code that measures."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cleaning.facts import MIN_TIME_S
from cleaning.gates.blocks import _block, _is_enough, _order, _paired, _placed, _steps
from measure.timing.blocks import blocks_in_order, measure_blocks, warm_up
from measure.timing.protocols import Protocol
from results.records import Ceiling, Cell, Run, Sample
from tests.support.fakes.hosts import Host, without_neighbours


@pytest.fixture(autouse=True)
def _no_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    without_neighbours(monkeypatch)


class Clock(Host):
    """A host without a device, whose steps take what a list says, over and over."""

    def __init__(self, *lengths_s: float) -> None:
        super().__init__(100.0)
        self.lengths_s, self.calls = lengths_s, 0

    def step(self) -> None:
        self.now_s += self.lengths_s[self.calls % len(self.lengths_s)]
        self.calls += 1


def measured(clock: Clock, quick: bool) -> tuple[Run, list[Sample]]:
    protocol = Protocol.for_device("cpu", quick=quick)
    warm = warm_up(clock.step, clock, protocol)
    timing = measure_blocks(clock.step, clock, protocol, warm.step_s)
    cell = Cell(model="alexnet", batch_size=1, device="cpu", quick=quick)
    run = Run(**{name: getattr(cell, name) for name in cell.to_row()}, **ROW)
    rows = [
        replace(block, cell_id="c", attempt=1, index=index) for index, block in enumerate(blocks_in_order(warm, timing))
    ]
    return run, rows


ROW = {"cell_id": "c", "attempt": 1, "sitting": "s0", "status": "ok"}

LENGTHS = {
    "even": (0.013,),
    "long": (0.7,),
    "every seventh is slow": (0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.3),
    "it gets faster": tuple(0.2 * 0.97**i for i in range(200)),
}


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_blocks_that_were_measured_have_the_steps_that_follow(lengths: str, quick: bool) -> None:
    run, rows = measured(Clock(*LENGTHS[lengths]), quick)
    assert len(rows) > 4
    assert list(_steps(run, rows)) == []


@pytest.mark.parametrize("part", ["warmup", "measure"])
@pytest.mark.parametrize("factor", [2, 0.5])
def test_one_block_of_other_steps_is_noticed(part: str, factor: float) -> None:
    run, rows = measured(Clock(0.013), quick=False)
    place = next(i for i, row in enumerate(rows) if row.part == part and i)
    rows[place] = replace(rows[place], steps=int(factor * rows[place].steps))
    assert list(_steps(run, rows)) != []


def test_a_warm_up_begins_with_one_step() -> None:
    run, rows = measured(Clock(0.013), quick=False)
    rows[0] = replace(rows[0], steps=2)
    assert any("begins with 2 steps" in words for words in _steps(run, rows))


@pytest.mark.parametrize(("wait_s", "is_right"), [(None, False), (0.0, False), (0.0099, False), (0.011, True)])
def test_a_block_is_only_disturbed_if_it_waited_for_a_twentieth_of_its_time(
    wait_s: float | None, is_right: bool
) -> None:
    """A twentieth of 0.2 s is 0.01 s."""
    block = Sample(part="disturbed", steps=10, start_s=0.0, wall_s=0.2, run_wait_s=wait_s)
    assert list(_block(block, False, False, False)) == (
        [] if is_right else [f"marked as disturbed with a wait of {wait_s} s of 0.2 s for a processor"]
    )


def test_disturbed_blocks_are_in_the_order_of_the_others() -> None:
    """The block after it has steps by its time; and it must not overlap with its neighbours."""
    run, rows = measured(Clock(0.013), quick=False)
    place = next(i for i, row in enumerate(rows) if row.part == "measure") + 1
    slow = rows[place] = replace(rows[place], part="disturbed", steps=2 * rows[place].steps)
    assert any(f"block {slow.index} has {slow.steps} steps" in words for words in _order(run, rows))
    rows[place] = replace(slow, steps=slow.steps // 2)
    assert list(_order(run, rows)) == []
    rows[place] = replace(rows[place], wall_s=2 * slow.wall_s)
    assert any(f"begins before block {slow.index} ended" in words for words in _order(run, rows))


@pytest.mark.parametrize(
    ("trips_ns", "parts", "wrong"),
    [
        ([90, 90, 400, 400, 90, 90], "mm...m", None),
        ([90, 90, 400, 400, 90, 90], "mm..mm", 4),  # the block in which it changed back is used
        ([90, 90, 400, 400, 90, 90], "m....m", 1),  # hides a near block
        ([90, 90, 400, 400, 90, 90], "...m..", 0),  # the far one alone, of which there are fewer
        ([400, 400, 90, 90, 400, 400], "...m..", 0),  # the near one alone, which would be the faster
        ([90, 90, 400, 400, 90, 90], "mm.m.m", 3),  # both are used, and others are called moved
        ([90, 90, 400, 400, 90, 90], "..m...", 0),  # one in which it changed, which is of neither
        ([90, 90, 90, 90, 90, 90], "mm..mm", 2),  # nothing moved
        ([None] * 6, "mmm.mm", 3),
        ([90, 90, 400, 400, 90, 90], "mmmmmm", None),  # all are used, where no placement has enough
        ([90, 90, 90, 90, 90, 400, 400], "mmmmmmm", 5),  # five near ones are enough
        ([90, 90, 90, 90, 90, None, None], "mmmmmmm", None),  # one placement, and blocks without a time
    ],
)
def test_a_block_is_only_moved_if_processors_were_placed_otherwise(trips_ns, parts: str, wrong: int | None) -> None:
    rows = [
        Sample(
            part={"m": "measure", ".": "moved"}[part], index=index, steps=1, start_s=float(index), wall_s=1.0,
            core_round_trip_s=trip_ns and trip_ns * 1e-9,
        )
        for index, (trip_ns, part) in enumerate(zip(trips_ns, parts, strict=True))
    ]  # fmt: skip
    cell = Cell(model="alexnet", batch_size=1, device="cpu")
    run = Run(**{name: getattr(cell, name) for name in cell.to_row()}, **ROW)
    found = list(_placed(run, rows))
    assert [words.partition(" is ")[0] for words in found] == ([] if wrong is None else [f"block {wrong}"])


ROWS = [
    Ceiling(sitting="s0", device="cpu", precision="fp32", unit="fp32", operation="matmul", shape="8x8x8", flop=1024),
    Ceiling(sitting="s1", device="cpu", precision="fp32", unit="fp32", operation="matmul", shape="8x8x8", flop=2048),
]


@pytest.mark.parametrize(
    ("flop", "kernel", "is_right"),
    [(3072, "matmul 8x8x8", True), (6144, "matmul 8x8x8", False), (3072, "matmul 8x8x9", False)],
)
def test_a_kernel_between_blocks_is_one_of_the_sessions_ceilings_with_its_flop(
    flop: int, kernel: str, is_right: bool
) -> None:
    """Three calls of 1,024 FLOP; the row of another session says 2,048."""
    cell = Cell(model="alexnet", batch_size=1, device="cpu", paired_ceiling=True)
    run = Run(**{name: getattr(cell, name) for name in cell.to_row()}, **ROW)
    sample = Sample(part="ceiling", steps=3, start_s=0.0, wall_s=0.1, unit="fp32", kernel=kernel, flop=flop)
    evidence: Any = SimpleNamespace(data=SimpleNamespace(ceilings=ROWS))
    assert (list(_paired(evidence, run, [sample])) == []) is is_right
    assert list(_block(sample, False, False, False)) == []
    assert list(_block(replace(sample, unit=""), False, False, False)) != []


def test_blocks_of_one_placement_are_enough_by_the_rules_of_measuring() -> None:
    """Five blocks of 0.5 s, within 3 %; each rule is missed once by a little."""
    cell = Cell(model="alexnet", batch_size=1, device="cpu")
    run = Run(**{name: getattr(cell, name) for name in cell.to_row()}, **ROW)
    near = [
        Sample(part="measure", index=i, steps=1, start_s=float(i), wall_s=0.5, core_round_trip_s=9e-8) for i in range(5)
    ]
    wide = [replace(each, wall_s=0.5 + 0.05 * each.index) for each in near]
    assert _is_enough(run, near, near)
    for other in (
        near[1:],
        [*near, replace(near[0], core_round_trip_s=None)],
        [replace(each, wall_s=0.39) for each in near],
        wide,
    ):
        assert not _is_enough(run, other, other)
    assert not _is_enough(replace(run, quick=True), near, near)
    # a kernel that is as much slower as the steps: with a paired ceiling the ratio counts
    beside = [
        Sample(part="ceiling", index=5 + i, steps=1, start_s=i + 0.9, wall_s=each.wall_s / 5, unit="fp32", flop=9)
        for i, each in enumerate(wide)
    ]
    assert _is_enough(replace(run, paired_ceiling=True), wide, [*wide, *beside])
    assert not _is_enough(run, wide, [*wide, *beside])
    protocol = Protocol.for_device("cpu")
    assert (protocol.min_time_s, Protocol.for_device("cuda").min_time_s) == (MIN_TIME_S["cpu"], MIN_TIME_S["cuda"])
