"""The caching allocator's rules: rounding by hand, small runs by hand, and any run against one that marks every block.

That real devices follow the same rules is for a GPU to say.
"""

from __future__ import annotations

import random
from itertools import groupby

import pytest

from analysis.footprint.caching_allocator import Pools, Reserved, replay, rounded, segment
from analysis.footprint.live_bytes import CAST, CATEGORIES, live_bytes
from results.records.operations import Storage

MIB = 2**20
ROLES = [category for category in CATEGORIES if category != CAST]


@pytest.mark.parametrize(
    ("nbytes", "block"), [(0, 0), (1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)]
)
def test_a_request_is_rounded_up(nbytes: int, block: int) -> None:
    assert rounded(nbytes) == block


@pytest.mark.parametrize(
    ("nbytes", "made"),
    [
        (0, 0),
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (31 * MIB, 32 * MIB),
    ],
)
def test_the_segment_that_a_request_makes(nbytes: int, made: int) -> None:
    assert segment(nbytes) == made


def kept(*sizes: int) -> list[Storage]:
    """Storages that are born one after another and stay."""
    return [Storage(i, size, "activation", i, None) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((4, 4, 4), Reserved(1536, 2 * MIB, 1)),  # three blocks of one small segment
        ((MIB, MIB, 1), Reserved(2 * MIB + 512, 4 * MIB, 2)),  # the first is full
        ((MIB, MIB + 1), Reserved(2 * MIB + 512, 22 * MIB, 2)),  # small and large do not share
        ((9 * MIB, 9 * MIB, 2 * MIB), Reserved(20 * MIB, 20 * MIB, 1)),  # all of one large segment
        ((9 * MIB, 10 * MIB), Reserved(20 * MIB, 20 * MIB, 1)),  # 1 MiB is left, too little to split off
        ((9 * MIB, 10 * MIB - 512), Reserved(19 * MIB - 512, 20 * MIB, 1)),  # a block more than that is
        ((0, 11 * MIB), Reserved(12 * MIB, 12 * MIB, 1)),  # nothing takes nothing; 1 MiB stays with the block
    ],
)
def test_runs_by_hand(sizes: tuple[int, ...], found: Reserved) -> None:
    assert replay(kept(*sizes), len(sizes)) == found


def test_a_freed_block_joins_both_neighbours() -> None:
    """Three of 5 MiB and one of 4 fill 20 MiB but one; freed in any order, the whole holds 9 + 9 again."""
    for order in ((0, 1, 2, 3), (1, 3, 2, 0), (2, 0, 3, 1)):
        pools = Pools()
        for number, size in enumerate((5, 5, 5, 4)):
            pools.take(number, size * MIB)
        for number in order:
            pools.give(number)
        assert pools.allocated == 0
        pools.take(10, 9 * MIB)
        pools.take(11, 9 * MIB)
        assert (pools.reserved, pools.segments) == (20 * MIB, 1)


def test_the_smallest_block_that_fits_is_taken() -> None:
    """Free: 6 MiB in front of 3 MiB. 3 MiB takes the second, so that 6 MiB still fits."""
    pools = Pools()
    for number, size in enumerate((6, 2, 3, 9)):
        pools.take(number, size * MIB)
    pools.give(0)
    pools.give(2)
    pools.take(10, 3 * MIB)
    pools.take(11, 6 * MIB)
    assert pools.segments == 1


def test_what_dies_and_what_is_born_meet_while_an_operation_runs() -> None:
    """The input of operation 1 is there as its output is made; the output of operation 2 takes its place."""
    storages = [
        Storage(0, MIB, "input", -1, 1),
        Storage(1, MIB, "activation", 1, None),
        Storage(2, MIB, "activation", 2, 2),
    ]
    assert replay(storages, 3) == Reserved(2 * MIB, 2 * MIB, 1)


class Marked:
    """The same rules over segments whose every 512 bytes are marked with the number that has them."""

    def __init__(self) -> None:
        self.segments: list[tuple[bool, list[int | None]]] = []

    def take(self, number: int, nbytes: int) -> None:
        """Mark the shortest free run that is long enough."""
        cells = -(-nbytes // 512)
        if not cells:
            return
        small = cells <= 2048
        runs = sorted(run for run in self.runs(small) if run[0] >= cells)
        if not runs:
            whole = 4096 if small else 40960 if cells < 20480 else -(-cells // 4096) * 4096
            self.segments.append((small, [None] * whole))
            runs = [(whole, len(self.segments) - 1, 0)]
        length, where, start = runs[0]
        left = length - cells
        end = start + (cells if left and (small or left > 2048) else length)
        self.segments[where][1][start:end] = [number] * (end - start)

    def runs(self, small: bool) -> list[tuple[int, int, int]]:
        """(length, segment, start) of each free run."""
        found = []
        for where, (of_small, cells) in enumerate(self.segments):
            start = 0
            for owner, group in groupby(cells):
                length = len(list(group))
                if owner is None and of_small == small:
                    found.append((length, where, start))
                start += length
        return found

    def give(self, number: int) -> None:
        """Unmark what the number has."""
        for _small, cells in self.segments:
            cells[:] = [None if owner == number else owner for owner in cells]

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(len(cells) for _small, cells in self.segments) * 512

    @property
    def allocated(self) -> int:
        """Bytes that are marked."""
        return sum(owner is not None for _small, cells in self.segments for owner in cells) * 512


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_run_that_marks_every_block(seed: int) -> None:
    dice = random.Random(seed)
    pools, marked, living = Pools(), Marked(), []
    for number in range(60):
        nbytes = dice.choice([0, 3, 700, MIB // 2, MIB, MIB + 1, 3 * MIB, 5 * MIB + 9, 9 * MIB, 10 * MIB, 13 * MIB])
        for each in (pools, marked):
            each.take(number, nbytes)
        living.append(number)
        while len(living) > 6 or (living and dice.random() < 0.3):
            gone = living.pop(dice.randrange(len(living)))
            for each in (pools, marked):
                each.give(gone)
        assert (pools.allocated, pools.reserved) == (marked.allocated, marked.reserved)


@pytest.mark.parametrize("seed", range(20))
def test_never_below_the_live_bytes(seed: int) -> None:
    dice = random.Random(seed)
    storages = []
    for number in range(40):
        born = dice.randint(-1, 29)
        died = dice.choice([None, dice.randint(born, 29)])
        storages.append(Storage(number, dice.randrange(12 * MIB), dice.choice(ROLES), born, died))
    found = replay(storages, 30)
    assert max(live_bytes(storages, 30)) <= found.allocated_bytes <= found.reserved_bytes
    assert found.reserved_bytes <= sum(segment(rounded(each.nbytes)) for each in storages)


def test_storages_of_unknown_size_are_left_out() -> None:
    assert replay([Storage(0, None, "gradient", 0, 0), Storage(1, 4, "weight", -1, None)], 1).allocated_bytes == 512
