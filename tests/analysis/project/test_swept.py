"""Steps of several ranks predicted from what they ran and handed over, derived by hand."""

from __future__ import annotations

import pytest

from analysis.parallel import CollectiveRate
from analysis.project.parallelism import PredictedStep, predicted_steps
from results.records import ParallelStep, RankCollective, RankRow, Run

FLOP, FLOP_PER_S = 6e9, 1e10
KERNELS_S = 0.6

MEASURED_S = 1.0


def rate(operation: str, nbytes: int, median_s: float, ranks: int = 2) -> CollectiveRate:
    return CollectiveRate(
        operation=operation, ranks=ranks, backend="gloo", device="cpu", nbytes=nbytes, median_s=median_s
    )


RATES = [
    *(rate(kind, 1000, 0.1) for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
    *(rate(kind, 3000, 0.2) for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
]
"""2,000 bytes take 0.15 s, 500 bytes 0.1 s, 6,000 bytes 0.4 s."""


def given(kind: str, calls: float, nbytes: float | None, rank: int = 0) -> RankCollective:
    return RankCollective(
        cell_id="a", attempt=1, rank=rank, kind=kind, calls=calls, given_bytes=nbytes, time_s=1.0, group_size=None
    )


def ran(rank: int = 0, flop: float = FLOP, **more: object) -> RankRow:
    of = {"cell_id": "a", "attempt": 1, "host": "h", "ceiling": {"fp32": FLOP_PER_S}}
    return RankRow(**{**of, "rank": rank, "executed": {"matmul/float32": flop}, **more})


def predicted(
    plan: str,
    collectives: list[RankCollective],
    ranks: list[RankRow] | None = None,
    rates: list[CollectiveRate] | None = None,
    **run: object,
) -> PredictedStep:
    of = {"cell_id": "a", "attempt": 1, "model": "m", "batch_size": 8, "device": "cpu", "parallel": plan}
    shares = {"compute_ratio": 0.5, "exposed_ratio": 0.2, "overlapped_ratio": 0.1}
    step = ParallelStep(**of, precision="fp32", ranks=2, time_s=MEASURED_S, **shares)
    cell = Run(**{**of, "sitting": "s0", "status": "ok", **run})
    (row,) = predicted_steps([cell], [step], ranks or [ran()], collectives, RATES if rates is None else rates)
    return row


def test_gradients_are_reduced_behind_two_thirds_of_the_kernels() -> None:
    """Kernels of 0.6 s hide 0.4 s: of two calls of 2,000 bytes all 0.3 s, of two of 6,000 bytes all but 0.4 s."""
    row = predicted("ddp=2", [given("all_reduce", 2, 4000)])
    assert row.reason == ""
    assert (row.compute_s, row.exposed_s, row.bubble_s) == (pytest.approx(KERNELS_S), 0, 0)
    assert row.collective_s == pytest.approx(0.3)
    assert row.step_s == row.step_ratio == pytest.approx(KERNELS_S)
    row = predicted("ddp=2", [given("all_reduce", 2, 12000)])
    assert row.exposed_s == pytest.approx(0.4)
    assert row.step_s == pytest.approx(KERNELS_S + 0.4)
    assert row.links == "measured"


def test_measured_parts_are_shares_of_the_measured_step() -> None:
    row = predicted("ddp=2", [given("all_reduce", 1, 100)])
    assert row.measured_step_s == MEASURED_S
    assert (row.measured_compute_s, row.measured_exposed_s) == (0.5, 0.2)
    assert row.measured_collective_s == pytest.approx(0.3)


def test_shared_weights_are_gathered_behind_all_kernels() -> None:
    """Each of two ranks gives 1,000 bytes: a buffer of 2,000, 0.15 s; 6,000 bytes take 0.4 s; five of both 2.75 s."""
    row = predicted("fsdp=2", [given("all_gather", 5, 5000), given("reduce_scatter", 5, 30000)])
    assert row.collective_s == pytest.approx(5 * (0.15 + 0.4))
    assert row.exposed_s == pytest.approx(2.75 - KERNELS_S)


def test_nothing_hides_what_other_axes_send() -> None:
    for plan, kind in (("tp=2", "all_reduce"), ("cp=2", "all_to_all"), ("ddp=2,ep=2", "all_to_all")):
        row = predicted(plan, [given(kind, 2, 4000)])
        assert row.exposed_s == row.collective_s == pytest.approx(0.3)
    row = predicted("ddp=2,ep=2", [given("all_to_all", 2, 4000), given("all_reduce", 2, 12000)])
    assert row.exposed_s == pytest.approx(0.3 + 0.8 - 0.4)


def test_a_pipeline_waits_for_its_fill_and_drain_and_sends_each_micro_batch() -> None:
    """A message of 1,000 bytes takes as long as an all_gather of 2,000 between two ranks, in which each sends 1,000."""
    row = predicted("pp=2,m=4", [given("send", 4, 4000), given("receive", 4, 4000)])
    assert row.collective_s == row.exposed_s == pytest.approx(4 * 0.15)
    assert row.bubble_s == pytest.approx((KERNELS_S + 0.6) / 4)
    assert row.step_s == pytest.approx(1.25 * (KERNELS_S + 0.6))
    assert row.left_out == ""


def test_the_slowest_rank_s_step_is_that_of_all() -> None:
    ranks = [ran(0), ran(1, 2 * FLOP), ran(2, FLOP, ceiling={"fp32": FLOP_PER_S / 4})]
    row = predicted("ddp=3", [], ranks)
    assert (row.rank, row.step_s) == (2, pytest.approx(4 * KERNELS_S))


def test_sizes_beyond_those_that_were_timed() -> None:
    small, large = predicted("tp=2", [given("all_reduce", 1, 10)]), predicted("tp=2", [given("all_reduce", 1, 9000)])
    assert small.collective_s == pytest.approx(0.1), "it takes no less than the smallest"
    assert large.collective_s == pytest.approx(0.6), "at the rate of the largest: 15,000 bytes/s"


SHEET = {"precision": "amp-bf16", "device": "cuda"}


def test_without_rates_the_datasheet_s_links_and_peak_hold() -> None:
    """An A100: 300 GB/s a direction over NVLink 3, of which 0.8 are reached, 3.4 µs a step of the ring. Two ranks
    reduce 2.4 GB in two halves of 1.2 GB each and two steps. 0.8 of 312 TFLOP/s."""
    of = {"device_name": "NVIDIA A100-SXM4-80GB", "ceiling": {}, "executed": {"matmul/bfloat16": 312e12}}
    ranks = [ran(number, **of) for number in range(2)]
    row = predicted("tp=2", [given("all_reduce", 1, 2.4e9)], ranks, [], **SHEET)
    assert row.reason == ""
    assert row.compute_s == pytest.approx(1 / 0.8)
    assert row.collective_s == pytest.approx(2.4 / 240 + 2 * 3.4e-6)
    assert row.links == "NVLink 3"
    apart = [ran(number, **{**of, "host": f"h{number}"}) for number in range(2)]
    assert predicted("tp=2", [given("all_reduce", 1, 2.4e9)], apart, [], **SHEET).links.startswith("NVLink 3, ")


REASONS = {
    "two axes have such": ("ddp=2,tp=2", [given("all_reduce", 1, 10)], {}, "all_reduce is of tp or ddp, and the"),
    "no axis has such": ("pp=2", [given("all_to_all", 1, 10)], {}, "all_to_all is of no axis of pp=2,m=4"),
    "no size": ("ddp=2", [given("all_reduce", 1, None)], {}, "the recording has no size of all_reduce"),
    "no rate": ("ddp=2", [given("all_reduce", 1, 10)], {"rates": [rate("all_gather", 9, 1.0)]}, "between 2 ranks"),
    "other ranks": ("ddp=2", [given("all_reduce", 1, 10)], {"rates": [rate("all_reduce", 9, 1.0, 4)]}, "between 2"),
    "no link": ("ddp=2", [given("all_reduce", 1, 10)], {"rates": []}, "no measured time of all_reduce"),
    "not counted": ("ddp=2", [], {"ranks": [ran(executed={})]}, "what rank 0 ran is not known"),
    "no ceiling": ("ddp=2", [], {"ranks": [ran(ceiling={})]}, "rank 0 has no measured ceiling of fp32"),
}


@pytest.mark.parametrize("why", REASONS)
def test_what_is_not_known_is_a_reason_and_no_number(why: str) -> None:
    plan, collectives, more, words = REASONS[why]
    row = predicted(plan, collectives, **more)
    assert words in row.reason
    assert (row.step_s, row.compute_s, row.step_ratio) == (None, None, None)
    assert row.measured_step_s == MEASURED_S


def test_kinds_that_nothing_times_alone_are_named() -> None:
    row = predicted("ddp=2", [given("broadcast", 1, 10), given("all_reduce", 1, 10)])
    assert (row.left_out, row.reason) == ("broadcast", "")


def test_steps_that_were_not_measured_are_left_out() -> None:
    step = ParallelStep(
        cell_id="a", attempt=1, model="m", batch_size=8, precision="fp32", device="cpu", parallel="ddp=2", ranks=2
    )
    assert predicted_steps([], [step], [], []) == []
