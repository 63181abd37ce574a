"""Definition, known answer: the ceiling of a cell's session, device and allocator, and ratios of a made-up run.

Blocks are told apart by how far two processors were apart after each of them.
"""

from functools import partial
from pathlib import Path

import pytest

from analysis.utilization.denominators import (
    ceiling_of,
    ceilings_of,
)
from analysis.utilization.step_times import in_one_placement, placements, same_placement
from cleaning.reconcile.run import build
from results.records.cell import Ceiling, Run, Sample
from results.store.store import read_operations, read_profile, read_run
from tests.support.made_up import run_fixture

RATES = {("s0", "cpu", "default"): 1e9, ("s0", "cpu", "retain"): 2e9, ("s1", "cpu", "default"): 4e9}
ROWS = [
    Ceiling(
        session=session, device=device, precision="fp32", unit="fp32", operation="matmul", shape="8x8x8", malloc=malloc,
        flop=1024, median_s=1024 / rate, flop_per_s=rate,
    )
    for (session, device, malloc), rate in RATES.items()
]  # fmt: skip


@pytest.mark.parametrize(("place", "rate"), RATES.items())
def test_the_ceiling_is_that_of_the_cells_own_session_and_allocator(place, rate: float) -> None:
    session, device, malloc = place
    run = Run(
        model="a", batch_size=1, device=device, malloc=malloc, cell_id="c", attempt=1, session=session, status="ok"
    )
    assert [row.flop_per_s for row in ceilings_of(run, ROWS)] == [rate]
    assert ceiling_of(ceilings_of(run, ROWS)).peak_by_unit == {"fp32": rate}


def test_there_is_none_of_another_allocator() -> None:
    run = Run(model="a", batch_size=1, device="cpu", malloc="retain", cell_id="c", attempt=1, session="s1", status="ok")
    assert ceilings_of(run, ROWS) == []


def test_every_ratio_of_a_run_follows_from_how_it_was_made(tmp_path: Path) -> None:
    path = run_fixture.write_run(tmp_path / "run", peak_tflops=80.0)
    built = build(read_run(path), lambda trace_id: read_operations(path, trace_id)[0], partial(read_profile, path))
    clock = {
        "fp32": 132 * 128 * 2 * run_fixture.CLOCK_HZ,
        "amp-bf16": 132 * 2048 * 2 * run_fixture.CLOCK_HZ,
    }  # SMs × FMA × 2 × f
    ceiling = {"fp32": 52e12, "amp-bf16": 650e12}
    for view in built.views:
        run, key = view.run, (view.run.model, view.run.batch_size, view.run.precision)
        if key not in run_fixture.RATIO:
            continue
        exact, forward = run_fixture.EXACT_FLOP[run.model], 2 * run_fixture.FORWARD_MAC[run.model]
        published = forward // 2 + run_fixture.NORMALIZATION_MAC
        times_exact = {"exact": 1, "theory": 3 * forward / exact, "theory_as_published": 3 * published / exact}
        under = {"datasheet": run_fixture.PEAK[run.precision], "clock": clock[run.precision]}
        under |= {"ceiling": ceiling[run.precision], "user": 80e12}
        for method, times in times_exact.items():
            for denominator, peak in under.items():
                row = view.fraction(method, denominator)
                expected = run_fixture.RATIO[key] * run_fixture.PEAK[run.precision] * times / peak
                assert row.utilization_ratio == pytest.approx(expected, rel=1e-9), (key, method, denominator)
                assert row.utilization_low_ratio < row.utilization_ratio < row.utilization_high_ratio
                tensor = run.precision != "fp32"
                assert not (tensor and row.utilization_ratio > 1 and not row.warnings)


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
