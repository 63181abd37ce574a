"""Definition, injected fault: time of many ranks by hand and by brute force; ranks that disagree are named."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.rank_report import StepFlop, match_collectives, report_of, shifted, straggler_of, waits_of
from analysis.rank_timelines import COLLECTIVE_COLUMNS, STEP_COLUMNS, RankTimeline, breakdown_of, by_rank, length, union

MS = 1_000_000

Call = tuple[int, int]
INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda at: (at[0], at[0] + at[1])), max_size=12
)


def array(intervals: list[Call]) -> np.ndarray:
    return np.array(intervals, np.int64).reshape(-1, 2)


def timeline(
    rank: int, compute: list[Call], calls: list[Call], steps: list[Call] | None = None, **more: object
) -> RankTimeline:
    """Of a rank that computes, and takes part in an all_reduce of 8 bytes for each of `calls`; in ms."""
    steps = [(0, 100)] if steps is None else steps
    number = [next((n for n, (begin, end) in enumerate(steps) if begin <= start < end), -1) for start, _ in calls]
    rows = [
        (start * MS, end * MS, "all_reduce", "0", 2, "", 8, step)
        for (start, end), step in zip(calls, number, strict=True)
    ]
    found = RankTimeline(
        rank=rank,
        path=f"rank{rank}.json",
        host="host",
        world_size=2,
        device_name="",
        device=True,
        compute=array(compute) * MS,
        memory=array([]),
        collectives=pd.DataFrame(rows, columns=list(COLLECTIVE_COLUMNS)),
        steps=pd.DataFrame(
            [(n, begin * MS, end * MS) for n, (begin, end) in enumerate(steps)], columns=list(STEP_COLUMNS)
        ),
    )
    return replace(found, **more)  # type: ignore[arg-type]


def ticks(intervals: list[Call]) -> np.ndarray:
    """Which of 100 units of time an interval covers."""
    covered = np.zeros(100, bool)
    for start, end in intervals:
        covered[start:end] = True
    return covered


@given(INTERVALS, INTERVALS)
def test_the_length_of_a_union_is_the_number_of_covered_ticks(one: list[Call], other: list[Call]) -> None:
    assert length(array(one), array(other)) == (ticks(one) | ticks(other)).sum()
    parts = union(array(one))
    assert (parts[1:, 0] > parts[:-1, 1]).all(), "in order, and not touching"


@given(INTERVALS, INTERVALS, INTERVALS)
def test_a_breakdown_is_the_ticks_of_each_kind(compute: list[Call], calls: list[Call], copies: list[Call]) -> None:
    found = breakdown_of(replace(timeline(0, compute, calls), memory=array(copies) * MS), 10 * MS, 80 * MS)
    a, b, c = (ticks(each)[10:80] for each in (compute, calls, copies))
    ms = {name: round(value * 1000, 6) for name, value in vars(found).items()}
    assert ms == {
        "window_s": 70,
        "compute_s": a.sum(),
        "communication_s": b.sum(),
        "exposed_s": (b & ~a).sum(),
        "overlapped_s": (a & b).sum(),
        "memory_s": (c & ~a & ~b).sum(),
        "idle_s": (~a & ~b & ~c).sum(),
    }


def pair() -> dict[int, RankTimeline]:
    """Rank 1 computes 30 ms longer before each of two all_reduces; both leave them together.

    Rank 0: computes 0-20, reduces 20-55 (30 of them waiting), computes 55-60, reduces 60-75 (10 waiting).
    Rank 1: computes 0-50, reduces 50-55, computes 55-70, reduces 70-75.
    """
    return by_rank(
        [
            timeline(1, [(0, 50), (55, 70)], [(50, 55), (70, 75)], [(0, 75)]),
            timeline(0, [(0, 20), (55, 60)], [(20, 55), (60, 75)], [(0, 75)]),
        ]
    )


def test_each_waits_for_the_last_to_enter() -> None:
    matched, problems = match_collectives(pair())
    assert problems == []
    (wait,) = waits_of(matched, 1)
    assert (wait.rank, wait.for_rank, wait.collectives) == (0, 1, 2)
    assert wait.wait_s == pytest.approx(0.040)  # 30 + 10 ms
    late = straggler_of(matched)
    assert (late.rank, late.share, late.steps, late.of_steps, late.since) == (1, 1.0, 1, 1, 0)


@pytest.mark.parametrize("hours", [0, 1])
def test_clocks_of_two_hosts_are_set_by_the_ends_of_collectives(hours: int) -> None:
    ranks = pair()
    off = hours * 3_600_000_000_000 + 7 * MS
    ranks[1] = replace(ranks[1].later(off), host="elsewhere")
    moved, shifts = shifted(ranks, match_collectives(ranks)[0])
    assert [shift.shift_s for shift in shifts] == [0, pytest.approx(-off / 1e9)]
    assert shifts[1].spread_s == 0
    again = waits_of(match_collectives(moved)[0], 1)
    assert [round(wait.wait_s, 6) for wait in again] == [0.040]


def test_one_host_has_one_clock_unless_that_cannot_be() -> None:
    ranks = pair()
    ranks[1] = ranks[1].later(2 * MS)
    assert shifted(ranks, match_collectives(ranks)[0])[1][1].shift_s == 0, "it may leave 2 ms later"
    ranks[1] = ranks[1].later(500 * MS)
    assert shifted(ranks, match_collectives(ranks)[0])[1][1].shift_s == pytest.approx(-0.502)


def test_a_rank_that_shares_no_group_with_the_first_is_reached_over_another() -> None:
    def of_group(rank: int, group: str, off: int, more: tuple[str, int] | None = None) -> RankTimeline:
        made = timeline(rank, [], [(10, 20), (30, 40)] if more else [(10, 20)], host=f"host{rank}")
        groups = [group, more[0]] if more else [group]
        rows = made.collectives.assign(group=groups)
        if not more and group == "b":  # its only collective is the second one of the rank between
            rows = rows.assign(start_ns=30 * MS, end_ns=40 * MS)
        return replace(made, collectives=rows).later(off)

    ranks = by_rank([of_group(0, "a", 0), of_group(1, "a", 5 * MS, ("b", 0)), of_group(2, "b", 9 * MS)])
    shifts = shifted(ranks, match_collectives(ranks)[0])[1]
    assert [round(shift.shift_s * 1000, 6) for shift in shifts] == [0, -5, -9]
    assert [shift.by for shift in shifts] == [None, 0, 1]


DIFFERENT = {
    "fewer": (
        lambda rows: rows.iloc[:1],
        "step 0: group 0 has 2 (rank 0) and 1 (rank 1) collectives, so none is matched",
    ),
    "kind": (
        lambda rows: rows.assign(kind=["all_reduce", "all_gather"]),
        "step 0: collective 1 of group 0 is all_reduce (rank 0) and all_gather (rank 1)",
    ),
    "size": (
        lambda rows: rows.assign(nbytes=[8, 16]),
        "step 0: all_reduce 1 of group 0 is of 8 (rank 0) and 16 (rank 1) bytes",
    ),
}


@pytest.mark.parametrize("how", DIFFERENT)
def test_ranks_that_do_not_agree_are_named_and_not_matched(how: str) -> None:
    change, words = DIFFERENT[how]
    ranks = pair()
    ranks[1] = replace(ranks[1], collectives=change(ranks[1].collectives))
    matched, problems = match_collectives(ranks)
    assert problems == [words]
    assert len(matched) == (0 if how == "fewer" else 2), "what came before is matched"


def test_the_systems_utilization_is_of_the_slowest_rank_and_all_peaks() -> None:
    flop = {0: StepFlop(3e9, "", 1e12), 1: StepFlop(6e9, "", 2e12)}
    found = report_of(pair(), flop)
    assert found.step_time_s == pytest.approx(0.075)
    assert found.flop_per_s == pytest.approx(9e9 / 0.075)
    assert found.utilization_ratio == pytest.approx(9e9 / 0.075 / 3e12)
    assert [row.utilization_ratio for row in found.ranks] == [pytest.approx(0.04), pytest.approx(0.04)]
    assert found.imbalance_ratio == pytest.approx(65 / 45 - 1)  # 25 and 65 ms of computing
    assert report_of(pair(), {0: flop[0]}).utilization_ratio is None, "a rank's FLOP are not known"


def test_two_recordings_of_one_rank_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two of rank 0: rank0\.json and rank0\.json"):
        by_rank([timeline(0, [], []), timeline(0, [], [])])
