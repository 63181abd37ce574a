"""Definition: the interval of a cell's repeats is Student's t on logarithms, with the scatter of all cells."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cleaning.reconcile.derived import View
from reports.sweep.repeats import repeats_by_cell, repeats_of
from tests.support.made_up import made_up_page


def cell(ratio: float, repeat: int, denominator: str = "ceiling", batch: int = 4) -> View:
    run = made_up_page.run_of("resnet18", batch, "fp32")
    run = replace(run, repeat=repeat, cell_id=f"{batch}-{denominator}-{repeat}")
    return View(run, (made_up_page.fraction(run, "exact", "flopledger", denominator, ratio),))


def of_repeat(view: View) -> View:
    return replace(view, fractions=tuple(replace(row, repeat=view.run.repeat) for row in view.fractions))


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
