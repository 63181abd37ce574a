"""Definition: scaling, shares and the late rank of cells that several ranks trained, from made-up times."""

import math
from collections.abc import Sequence

import pytest

from analysis.utilization.denominators import Denominator, of_ranks
from cleaning.reconcile.parallel_steps import parallel_steps
from results.records.answers import ParallelStep, StepTime
from results.records.cell import RankCollective, RankRow, Run, Sample


def run(parallel: str, batch_size: int = 8, **more: object) -> Run:
    of = {"model": "m", "batch_size": batch_size, "device": "cpu", "parallel": parallel}
    name = {"cell_id": f"{parallel}-{batch_size}", "attempt": 1, "session": "s0"}
    return Run(**{**of, **name, "status": "ok", "items_per_step": batch_size, **more})


def time(of: Run, mean_s: float, half: float = 0.0) -> StepTime:
    name = {"cell_id": of.cell_id, "attempt": 1, "model": "m", "batch_size": of.batch_size, "precision": "fp32"}
    times = {"mean_s": mean_s, "median_s": mean_s, "p5_s": mean_s, "p95_s": mean_s}
    ends = {"low_s": mean_s * (1 - half), "high_s": mean_s * (1 + half)}
    blocks = {"blocks": 5, "effective_blocks": 5.0, "steps": 50, "outliers": 0}
    return StepTime(**name, **times, **ends, **blocks, device="cpu", clock="wall")


def rank(of: Run, number: int, **more: object) -> RankRow:
    return RankRow(cell_id=of.cell_id, attempt=1, rank=number, host="h", device="cpu", **more)


def rows(
    runs: list[Run], times: list[StepTime], ranks: Sequence[RankRow] = (), samples: Sequence[Sample] = ()
) -> list[ParallelStep]:
    by_cell: dict[tuple[str, int], list[RankRow]] = {}
    for row in ranks:
        by_cell.setdefault((row.cell_id, row.attempt), []).append(row)
    blocks = {("ddp=3-9", 1): list(samples)}
    return list(parallel_steps(runs, times, by_cell, {}, blocks))


def test_scaling_is_the_rate_of_each_rank_against_the_fewest_ranks() -> None:
    one, two, large = run("ddp=1"), run("ddp=2"), run("ddp=2", 16)
    found = {row.cell_id: row for row in rows([one, two, large], [time(one, 8.0), time(two, 5.0), time(large, 10.0)])}
    assert found["ddp=2-8"].strong_ratio == pytest.approx(8 / (2 * 5))
    assert found["ddp=2-8"].weak_ratio is None, "no single rank has a batch of 4"
    assert found["ddp=2-16"].weak_ratio == pytest.approx(8 / 10)
    assert found["ddp=2-16"].strong_ratio is None, "no single rank has a batch of 16"
    assert found["ddp=1-8"].strong_ratio is None


def test_an_older_cell_whose_plan_has_an_axis_that_left_costs_no_other_cell_its_row() -> None:
    two, older = run("ddp=2"), run("cp=2")
    assert [row.cell_id for row in rows([older, two], [time(older, 8.0), time(two, 5.0)])] == ["ddp=2-8"]


def test_fewest_ranks_of_the_same_kind_come_first() -> None:
    ddp, fsdp, two = run("ddp=1"), run("fsdp=1"), run("fsdp=2")
    row = rows([ddp, fsdp, two], [time(ddp, 8.0), time(fsdp, 10.0), time(two, 5.0)])[2]
    assert row.strong_ratio == pytest.approx(1.0)


def test_a_late_rank_is_named_by_how_long_each_other_waits() -> None:
    """Of 1 s: two ranks wait 0.2 s each, 0.38 s of these 0.4 s for rank 2; each of two others thus 0.19 s."""
    of = run("ddp=3", 9)
    times = {"compute_s": 0.6, "exposed_s": 0.3, "overlapped_s": 0.1, "memory_s": 0.0, "idle_s": 0.1}
    waits = [(0.2, 0.05), (0.2, 0.0), (0.0, 0.95)]
    ranks = [
        rank(of, number, **times, wait_s=wait, waited_for_ratio=share, late_since_step=7 if number == 2 else None)
        for number, (wait, share) in enumerate(waits)
    ]
    (row,) = rows([of], [time(of, 1.0)], ranks)
    assert (row.late_rank, row.late_name, row.late_since_step, row.late_since_block) == (2, "h cpu", 7, None)
    assert row.late_ratio == pytest.approx(0.19)
    assert (row.compute_ratio, row.exposed_ratio, row.overlapped_ratio) == pytest.approx((0.6, 0.3, 0.1))
    assert row.imbalance_ratio == pytest.approx(0.0)
    prompt = [RankRow(**{**vars(each), "wait_s": 0.01 * each.wait_s}) for each in ranks]
    assert rows([of], [time(of, 1.0)], prompt)[0].late_rank is None, "0.2 % of a step"


TIMES = {
    "from the third on": ((0.83, 0.8, 1.0, 0.97, 1.02), 4),
    "in all": ((1.0, 0.99, 1.03, 0.98, 1.0), 2),
    "in all, the last one longer": ((1.0, 1.01, 0.99, 1.0, 1.13), 2),
    "in none, or after the last": ((0.8, 0.82, 0.79, 0.8, 0.81), None),
    "one slow block before": ((1.4, 0.8, 0.8, 1.0, 1.0, 1.0), 5),
    "one block": ((1.0,), 2),
}
"""Steps of 1 s with a wait of 0.19 s were recorded: 0.095 s divide late from not. Blocks 0 and 1 warm up, of
others some are disturbed."""


@pytest.mark.parametrize("case", TIMES)
def test_a_late_rank_is_dated_by_the_timed_blocks(case: str) -> None:
    times, since = TIMES[case]
    of = run("ddp=3", 9)
    parts = ["warmup"] * 2 + ["measure", "disturbed", "disturbed", *["measure"] * len(times)][: len(times)] + ["phase"]
    steps = [1.0, 1.0, *times, 1.0]
    blocks = [
        Sample(
            index=index, part=part, phase="forward" if part == "phase" else "", steps=5, start_s=0.0, wall_s=5 * each
        )
        for index, (part, each) in enumerate(zip(parts, steps, strict=True))
    ]
    waits = [(0.2, 0.05), (0.2, 0.0), (0.0, 0.95)]
    ranks = [
        rank(of, number, compute_s=0.6, exposed_s=0.4, wait_s=wait, waited_for_ratio=share, late_since_step=7)
        for number, (wait, share) in enumerate(waits)
    ]
    assert rows([of], [time(of, 1.0)], ranks, blocks)[0].late_since_block == since


def test_a_peak_of_ranks_is_the_sum_of_their_ceilings_or_times_a_datasheets() -> None:
    ceiling = Denominator("ceiling", {"fp32": 100.0, "bf16": 400.0}, {"fp32": "a", "bf16": "b"})
    both = of_ranks(ceiling, 2, [{"fp32": 100.0, "bf16": 400.0}, {"fp32": 90.0}])
    assert both.peak_by_unit == {"fp32": 190.0, "bf16": 800.0}
    sheet = Denominator("datasheet", {"fp32": 100.0}, {"fp32": "a"})
    assert of_ranks(sheet, 2, [{"fp32": 1.0}, {"fp32": 1.0}]).peak_by_unit == {"fp32": 200.0}
    assert of_ranks(sheet, 1) is sheet


def test_bytes_are_those_of_the_rank_that_gives_most() -> None:
    of = run("ddp=2")
    given = [
        RankCollective(
            cell_id=of.cell_id, attempt=1, rank=number, kind="broadcast", calls=1.0, given_bytes=size, time_s=0.1
        )
        for number, size in enumerate((10.0, 30.0))
    ]
    (row,) = parallel_steps([of], [time(of, 1.0)], {}, {(of.cell_id, 1): given}, {})
    assert row.collective_bytes == {"broadcast": 30.0}


def test_its_interval_has_the_noise_of_both_times() -> None:
    one, two = run("ddp=1"), run("ddp=2")
    row = rows([one, two], [time(one, 8.0, 0.03), time(two, 5.0, 0.04)])[1]
    half = math.hypot(*(math.log((1 + half) / (1 - half)) / 2 for half in (0.03, 0.04)))
    assert row.strong_low_ratio == pytest.approx(0.8 * math.exp(-half))
    assert row.strong_high_ratio == pytest.approx(0.8 * math.exp(half))
