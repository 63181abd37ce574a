"""Definition: times of one sample, a batch and an epoch against sums and intervals worked out by hand."""

import dataclasses
import math

import pytest
from scipy import stats

from analysis.utilization.work_times import passes_of, work_times
from results.records.answers import WorkTime
from results.records.cell import Run, Sample

RUN = Run(
    model="resnet18",
    batch_size=64,
    device="cpu",
    methods=("one", "batch", "epoch"),
    epoch_images=10_000,
    cell_id="c",
    attempt=1,
    session="s",
    status="ok",
    profiled=("one", "batch", "last"),
)
"""156 full batches of 64 and one of 16."""


def block(
    wall_s: float, work: str = "", part: str = "measure", steps: int = 1, index: int = 0, **more: object
) -> Sample:
    return Sample(
        cell_id="c", attempt=1, index=index, part=part, steps=steps, start_s=0.0, wall_s=wall_s, work=work, **more
    )


def blocks(*wall_s: float, **more: object) -> list[Sample]:
    return [block(time_s, index=i, **more) for i, time_s in enumerate(wall_s)]


def by_work(samples: list[Sample], run: Run = RUN) -> dict[str, WorkTime]:
    return {row.work: row for row in work_times(run, samples)}


# Alternating times have a negative autocorrelation, which counts as none: Student's t on all of them, by scipy.
ONE = (0.010, 0.012, 0.010, 0.012)
BATCH = (2.0, 2.2, 2.0, 2.2)
LAST = (0.5, 0.7, 0.5, 0.7)
PLAIN = [*blocks(*ONE, work="one"), *blocks(*BATCH), *blocks(*LAST, work="last")]


PROFILED = [*blocks(0.02, work="one", part="profiled"), *blocks(3.0, part="profiled")]
PROFILED += blocks(1.2, work="last", part="profiled")


def half(values: tuple[float, ...]) -> float:
    """Half of the 95 % interval of the mean: t · s / √n."""
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.tstd(values) / math.sqrt(len(values)))


def ends(mean: float, width: float) -> tuple[float, float]:
    """The interval mean ± width on a logarithmic scale: its ends are as many times below the mean as above it."""
    return mean * math.exp(-width / mean), mean * math.exp(width / mean)


def test_an_epoch_that_could_not_be_run_whole_says_why():
    """Its time is there, from its batches; a narrow interval and a wide one."""
    run = dataclasses.replace(RUN, unprofiled={"epoch": "the worker died"})
    row = by_work([*PLAIN, *PROFILED], run)["epoch"]
    assert row.time_s == pytest.approx(156 * 2.1 + 0.6)
    assert (row.status, row.reason) == ("ok", "note: not run from end to end: the worker died")
    row = by_work([*PLAIN, *PROFILED], dataclasses.replace(run, warnings=("last: wide",)))["epoch"]
    assert (row.status, row.reason) == ("not_converged", "last: wide; not run from end to end: the worker died")
    assert by_work([*PLAIN, *PROFILED], run)["batch"].reason == ""


def test_each_work_has_the_mean_and_the_interval_of_its_own_blocks() -> None:
    rows = by_work(PLAIN)
    assert list(rows) == ["one", "batch", "last", "epoch"]
    for work, times, items in (("one", ONE, 1), ("batch", BATCH, 64), ("last", LAST, 16)):
        row, mean = rows[work], sum(times) / 4
        assert (row.items, row.steps, row.status) == (items, 1, "ok")
        assert row.time_s == pytest.approx(mean, rel=1e-12)
        assert (row.low_s, row.high_s) == pytest.approx(ends(mean, half(times)), rel=1e-9)


def test_an_epoch_is_its_full_batches_and_its_last_one() -> None:
    row = by_work(PLAIN)["epoch"]
    assert (row.items, row.steps) == (10_000, 157)
    assert row.time_s == pytest.approx(156 * 2.1 + 0.6, rel=1e-12)  # 328.2 s
    # the error of the full batch's mean is in each of the 156; that of the last batch adds by squares
    expected = math.sqrt((156 * half(BATCH)) ** 2 + half(LAST) ** 2)
    assert (row.low_s, row.high_s) == pytest.approx(ends(row.time_s, expected), rel=1e-9)


def test_profiled_times_stand_beside_and_say_what_the_profiler_costs() -> None:
    profiled = [*blocks(0.020, 0.024, work="one", part="profiled"), *blocks(3.0, 3.3, 3.0, part="profiled")]
    profiled += blocks(1.2, work="last", part="profiled")
    rows = by_work(PLAIN + profiled)
    assert rows["one"].profiled_time_s == pytest.approx(0.022)
    assert rows["one"].overhead_ratio == pytest.approx(0.022 / 0.011 - 1)  # twice as long: 1
    assert rows["batch"].profiled_time_s == pytest.approx(3.1)
    assert rows["batch"].profiled_high_s == pytest.approx(ends(3.1, half((3.0, 3.3, 3.0)))[1])
    assert (rows["last"].profiled_time_s, rows["last"].profiled_low_s) == (1.2, None)  # a single step: no interval
    epoch = rows["epoch"]
    assert epoch.profiled_time_s == pytest.approx(156 * 3.1 + 1.2)
    assert epoch.overhead_ratio == pytest.approx((156 * 3.1 + 1.2) / 328.2 - 1)
    assert (epoch.profiled_low_s, epoch.profiled_high_s) == (None, None)  # one of its two parts has none
    assert {row.reason for row in rows.values()} == {""}


def test_a_real_epoch_is_the_sum_of_its_segments_and_the_last_one_does_not_widen_it() -> None:
    run = dataclasses.replace(RUN, epoch_images=64 * 10 + 16)
    # 3 segments of 3 full steps at 2.0, 2.2 and 2.0 s a step, then one of a full step and the small batch: 2.1 + 0.6 s
    segments = [
        block(t, "epoch", steps=n, index=i) for i, (t, n) in enumerate([(6.0, 3), (6.6, 3), (6.0, 3), (2.7, 2)])
    ]
    row = by_work([*PLAIN, *reversed(segments)], run)["epoch"]
    assert row.real_time_s == pytest.approx(21.3)
    # 9 of its 11 steps are in even segments, whose mean step time has half width h: h · √(9 · 11)
    wide = half((2.0, 2.2, 2.0)) * math.sqrt(99)
    assert (row.real_low_s, row.real_high_s) == pytest.approx(ends(21.3, wide))
    assert row.agrees is True  # 10 × 2.1 + 0.6 = 21.6 s
    # an order that the last segment would spoil if it were in the spread: 1.35 s a step against 2.07 s
    assert wide < half((2.0, 2.2, 2.0, 1.35)) * 11


def test_a_real_epoch_far_off_does_not_agree_and_one_without_interval_does_not_say() -> None:
    run = dataclasses.replace(RUN, epoch_images=640)
    tight = blocks(*(2.0 + 0.001 * (i % 2) for i in range(20)))
    slow = [block(15.0 + 0.01 * (i % 2), "epoch", steps=5, index=i) for i in range(2)]
    assert by_work([*tight, *slow], run)["epoch"].agrees is False
    lone = by_work([*tight, block(20.0, "epoch", steps=10)], run)["epoch"]
    assert (lone.real_time_s, lone.real_low_s, lone.agrees) == (20.0, None, None)


def test_what_was_not_timed_is_a_row_with_its_reason() -> None:
    run = dataclasses.replace(RUN, unprofiled={"last": "an image of 16 is too small"})
    rows = by_work(blocks(*BATCH), run)
    assert (rows["one"].status, rows["one"].time_s, rows["one"].reason) == (
        "unavailable",
        None,
        "no measured block of one",
    )
    for work in ("last", "epoch"):
        assert (rows[work].status, rows[work].reason) == ("unavailable", "an image of 16 is too small")
        assert (rows[work].time_s, rows[work].items) == (None, None)
    assert rows["batch"].time_s is not None


def test_a_cell_that_failed_keeps_its_status_and_reason() -> None:
    run = dataclasses.replace(RUN, status="out_of_memory", reason="61 GiB")
    for row in work_times(run, PLAIN):
        assert (row.status, row.reason, row.time_s) == ("out_of_memory", "61 GiB", None)


@pytest.mark.parametrize(
    ("methods", "works"),
    [
        (("theory", "exact"), []),
        (("one",), ["one"]),
        (("batch", "exact"), ["batch"]),
        (("epoch",), ["batch", "last", "epoch"]),
        (("one", "epoch"), ["one", "batch", "last", "epoch"]),
    ],
)
def test_a_row_for_each_work_that_the_methods_ask_for(methods: tuple[str, ...], works: list[str]) -> None:
    run = dataclasses.replace(RUN, methods=methods)
    assert [row.work for row in work_times(run, PLAIN)] == works
    assert list(passes_of(run)) == works


def test_a_torn_real_epoch_is_none() -> None:
    row = by_work([*PLAIN, block(20.0, "epoch", steps=100)])["epoch"]
    assert (row.real_time_s, row.agrees) == (None, None)
    assert row.time_s is not None
