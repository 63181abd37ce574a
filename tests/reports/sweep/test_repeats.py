"""Repeats of a cell together: the interval is between them, and those over other peaks are not among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cleaning.reconcile.view import View
from reports.sweep.repeats import repeat_lines, repeats_by_cell, repeats_of
from results.records.answers import StepTime
from tests.support.made_up import made_up_page


def cell(ratio: float, repeat: int, denominator: str = "ceiling", batch: int = 4) -> View:
    run = made_up_page.run_of("resnet18", batch, "fp32")
    run = replace(run, repeat=repeat, cell_id=f"{batch}-{denominator}-{repeat}")
    return View(run, (made_up_page.fraction(run, "exact", "flopledger", denominator, ratio),))


def test_the_interval_is_students_t_on_logarithms() -> None:
    """14, 16 and 17.5 %, by scipy: mean and interval of their logarithms, as an independent route."""
    views = [cell(0.14, 0), cell(0.16, 1), cell(0.175, 2), cell(0.9, 0, batch=8)]
    (found,) = repeats_of(views, views)
    logs = np.log([0.14, 0.16, 0.175])
    low, high = stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs))
    assert (found.ratio, found.low, found.high) == pytest.approx(tuple(np.exp([logs.mean(), low, high])))
    assert [view.run.repeat for view in found.views] == [0, 1, 2]


def test_the_scatter_is_that_of_all_cells_of_the_run() -> None:
    """Two cells of three repeats that differ by 5 and by 10 %: √((5² + 10²) ÷ 2) = 7.91 %, with 4 degrees."""
    views = [
        of_repeat(cell(0.5 * np.exp(apart * place), repeat, batch=batch))
        for batch, apart in ((4, 0.05), (8, 0.1))
        for repeat, place in enumerate((-1, 0, 1))
    ]
    half = stats.t.ppf(0.975, 4) * np.sqrt((0.05**2 + 0.1**2) / 2 / 3)
    for asked in (views, views[:3]):
        found = repeats_of(asked, views)[0]
        assert (found.ratio, found.low, found.high) == pytest.approx((0.5, 0.5 * np.exp(-half), 0.5 * np.exp(half)))
        assert repeats_by_cell(asked, views)[views[0].run.cell_id, 1] == found


def test_a_single_cell_and_one_over_another_peak_are_no_repeats() -> None:
    views = [cell(0.14, 0), cell(0.16, 1, "datasheet"), cell(0.3, 2, batch=8)]
    assert repeats_of(views, views) == []
    assert repeats_by_cell(views, views) == {}


def test_the_line_has_each_repeat_and_how_far_processors_were_apart() -> None:
    """√(14 · 16) = 14.97; e^(12.706 · ln(16 ÷ 14) ÷ 2) = 2.336."""
    views = [cell(0.16, 1), cell(0.14, 0)]
    times = [time_of(view, trip_s) for view, trip_s in zip(views, (9e-8, 4e-7), strict=True)]
    assert repeat_lines(views, times) == [
        "± covers one window of each cell; with --repeat 5 it covers the variation between windows",
        "resnet18 b4 fp32 × 2: 14 %, 16 %; mean 15 %, 95 % interval 6.41 to 35.0 %; "
        "a cache line took 400, 90 ns between two processors"
    ]  # fmt: skip
    assert "cache" not in "".join(repeat_lines(views, times[:1]))


def test_the_first_line_says_what_windows_differ_by() -> None:
    """14, 16 and 17.5 % twice: the standard deviation of their logarithms, by numpy. With two repeats of two cells
    there are two degrees of freedom, and nothing is said."""
    views = [
        of_repeat(cell(ratio, repeat, batch=batch))
        for batch in (4, 8)
        for repeat, ratio in enumerate((0.14, 0.16, 0.175))
    ]
    first, *lines = repeat_lines(views, [])
    deviation = np.log([0.14, 0.16, 0.175]).std(ddof=1)
    assert first == (
        f"± covers any window of this run: it has the variation between repeats, {100 * deviation:.0f} % (standard "
        "deviation, 2 cells); the interval of a cell's own window is in utilization.csv"
    )
    assert len(lines) == 2
    advice = "± covers one window of each cell; with --repeat 3 it covers the variation between windows"
    assert repeat_lines([view for view in views if view.run.repeat < 2], [])[0] == advice
    assert repeat_lines([view for view in views if not view.run.repeat], []) == [advice]


def test_two_devices_have_a_line_each_and_no_interval_needs_no_advice() -> None:
    views = [
        of_repeat(moved(cell(0.14 + 0.01 * repeat, repeat, batch=batch), device))
        for device in ("cpu", "cuda:0")
        for batch in (4, 8)
        for repeat in range(3)
    ]
    lines = [line for line in repeat_lines(views, []) if "any window" in line]
    assert [line.partition("±")[0] for line in lines] == [
        "cpu, of the session's measured peak: ",
        "cuda:0, of the session's measured peak: ",
    ]
    without = cell(0.14, 0)
    rows = tuple(replace(row, utilization_low_ratio=None, utilization_high_ratio=None) for row in without.fractions)
    assert repeat_lines([replace(without, fractions=rows)], []) == []


def moved(view: View, device: str) -> View:
    rows = tuple(replace(row, device=device) for row in view.fractions)
    return View(replace(view.run, device=device, cell_id=f"{view.run.cell_id}-{device}"), rows)


def of_repeat(view: View) -> View:
    return replace(view, fractions=tuple(replace(row, repeat=view.run.repeat) for row in view.fractions))


def time_of(view: View, trip_s: float) -> StepTime:
    run = view.run
    return StepTime(
        cell_id=run.cell_id, attempt=run.attempt, model=run.model, batch_size=run.batch_size, precision=run.precision,
        device=run.device, clock="wall", mean_s=0.05, median_s=0.05, p5_s=0.05, p95_s=0.05, blocks=5,
        effective_blocks=5.0, steps=50, outliers=0, core_round_trip_s=trip_s,
    )  # fmt: skip
