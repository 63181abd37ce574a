"""A step's collectives beside a link's measured rate, derived by hand.

What each rank has to send at least, against a ring that is run step by step.
"""

import pytest

from analysis.parallel.link_use import COLLECTIVES, CollectiveRate, link_uses, sent_share
from results.records.cell import Run
from results.records.samples import RankCollective

RUN = Run(cell_id="a", attempt=1, model="m", batch_size=8, parallel="fsdp=2", device="cpu", sitting="s0", status="ok")


def rate(operation: str, nbytes: int, link: float | None, ranks: int = 2, **more: str) -> CollectiveRate:
    return CollectiveRate(
        operation=operation, ranks=ranks, backend="gloo", device="cpu", nbytes=nbytes, link_bytes_per_s=link, **more
    )


def given(kind: str, **more: object) -> RankCollective:
    row = {
        "cell_id": "a",
        "attempt": 1,
        "rank": 0,
        "group_size": 2,
        "calls": 4.0,
        "given_bytes": 4000.0,
        "time_s": 2e-3,
    }
    return RankCollective(**{**row, "kind": kind, **more})


def test_a_gather_s_buffer_is_what_all_ranks_give():
    """Four calls of 1,000 bytes a rank: buffers of 2,000, of which each rank sends half: 4 · 1,000 bytes in 2 ms."""
    rates = [rate("all_gather", 512, 1e6), rate("all_gather", 4096, 8e6), rate("all_reduce", 2000, 1.0)]
    (row,) = link_uses([RUN], [given("all_gather")], rates)
    assert row.buffer_bytes == 2000
    assert row.link_bytes_per_s == pytest.approx(2e6)
    assert row.measured_buffer_bytes == 4096, "2,000 is 3.9 × 512, and a half of 4,096"
    assert row.link_ratio == pytest.approx(0.25)
    assert row.reason == ""


def test_an_all_reduce_sends_everything_twice_but_its_own_part():
    """Of four ranks 2 · 3 ÷ 4 of 1,000 bytes a call."""
    (row,) = link_uses([RUN], [given("all_reduce", group_size=4)], [rate("all_reduce", 1024, 6e6, ranks=4)])
    assert row.buffer_bytes == 1000
    assert row.link_bytes_per_s == pytest.approx(4 * 1500 / 2e-3)
    assert row.link_ratio == pytest.approx(0.5)


def test_a_group_that_the_recording_does_not_name_is_that_of_the_only_axis():
    rates = [rate("all_reduce", 1024, 1e6)]
    (row,) = link_uses([RUN], [given("all_reduce", group_size=None)], rates)
    assert (row.ranks, row.reason) == (2, "")
    both = Run(**{**vars(RUN), "parallel": "fsdp=2,tp=2"})
    (row,) = link_uses([both], [given("all_reduce", group_size=None)], rates)
    assert (row.ranks, row.reason) == (None, "the recording has no size, group or time of it")


def test_what_has_no_rate_says_why():
    rates = [rate("all_reduce", 1024, 1e6, ranks=4), rate("all_gather", 1024, None, status="unavailable")]
    kinds = ["broadcast", "all_reduce", "all_gather"]
    rows = link_uses([RUN], [*map(given, kinds), given("all_reduce", time_s=0.0)], rates)
    assert [row.reason for row in rows] == [
        "broadcast is not timed alone",
        "no measured rate of all_reduce between 2 ranks on cpu",
        "no measured rate of all_gather between 2 ranks on cpu",
        "the recording has no size, group or time of it",
    ]
    assert all(row.link_ratio is None for row in rows)
    assert link_uses([], [given("all_reduce")], rates) == []


def test_to_all_others_goes_all_but_the_own_part() -> None:
    assert [sent_share("all_to_all", ranks) * ranks for ranks in (1, 2, 4)] == [0, 1, 3]
    assert [sent_share(operation, 1) for operation in COLLECTIVES] == [0] * 4
