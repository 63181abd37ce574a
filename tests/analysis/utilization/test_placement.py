"""Blocks by how far two processors were apart after each of them."""

from __future__ import annotations

import pytest

from analysis.utilization.placement import in_one_placement, placements, same_placement
from results.records.samples import Sample

NEAR, FAR = 90e-9, 400e-9


def blocks(*trips_s: float | None, wait_s: float = 0.0) -> list[Sample]:
    return [
        Sample(part="measure", steps=1, start_s=float(at), wall_s=1.0, run_wait_s=wait_s, core_round_trip_s=trip_s)
        for at, trip_s in enumerate(trips_s)
    ]


@pytest.mark.parametrize(
    ("trips_s", "expected"),
    [
        ([], []),
        ([None, None], [0, 0]),
        ([NEAR, 1.9 * NEAR], [0, 0]),
        ([FAR, FAR], [0, 0]),  # no other to compare with
        ([NEAR, 2.1 * NEAR], [0, None]),
        ([NEAR, NEAR, FAR, FAR, NEAR, NEAR], [0, 0, None, 1, None, 0]),
        ([NEAR, None, NEAR, FAR, FAR], [0, None, None, None, 1]),
        ([50e-9, NEAR, 150e-9, FAR, 500e-9], [0, 0, 0, None, 1]),  # the widest gap: 400 ÷ 150
    ],
)
def test_the_widest_gap_divides_them_and_a_move_is_in_neither(trips_s, expected) -> None:
    assert placements(blocks(*trips_s)) == expected


@pytest.mark.parametrize(
    ("one_s", "other_s", "same"),
    [
        (NEAR, 1.9 * NEAR, True),
        (2.1 * NEAR, NEAR, False),
        (NEAR, 2.1 * NEAR, False),
        (None, None, True),
        (None, NEAR, False),
        (NEAR, None, False),
    ],
)
def test_two_readings_of_one_placement(one_s, other_s, same) -> None:
    assert same_placement(one_s, other_s) is same


def test_the_placement_of_most_undisturbed_blocks_is_used() -> None:
    mine = blocks(NEAR, NEAR, NEAR, FAR, FAR, FAR, FAR, FAR)
    assert [block.start_s for block in in_one_placement(mine)] == [4, 5, 6, 7]
    disturbed = mine[:4] + blocks(*[FAR] * 8, wait_s=0.5)[4:6] + mine[6:]
    assert [block.start_s for block in in_one_placement(disturbed)] == [0, 1, 2]  # of far ones, two are left
