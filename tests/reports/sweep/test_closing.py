"""Definition: the interval and the peak of each number in the closing sentence, and when models are told apart."""

import math
from dataclasses import replace

from cleaning.reconcile.derived import View
from reports.sweep.headline import basis, closing
from tests.support.made_up import made_up_page


def cell(model: str, ratio: float, batch: int = 8, repeat: int = 0, **more: object) -> View:
    run = replace(made_up_page.run_of(model, batch, "fp32"), repeat=repeat, cell_id=f"{model}-{batch}-{repeat}")
    return View(run, (replace(made_up_page.fraction(run, "exact", "flopledger", "datasheet", ratio), **more),))


def test_each_number_has_its_interval_and_all_have_one_peak() -> None:
    """Intervals of ± 2 %: 0.4 is from 39.2 to 40.8 %."""
    views = [cell("vgg11", 0.4), cell("vgg13", 0.1), cell("vgg16", 0.2), cell("vgg13", 0.12, repeat=1)]
    found = closing(views)
    assert [view.run.cell_id for view in found.cells] == ["vgg11-8-0", "vgg13-8-0", "vgg13-8-1"]
    assert "vgg11 uses 40 % of the datasheet peak and vgg13 11 %" in found.sentence  # √(10 · 12) = 10.95
    # of the two repeats: t of one degree of freedom is 12.706, the standard error of two logarithms half their distance
    half = 12.706 * math.log(12 / 10) / 2
    ends = f"{10.954 * math.exp(-half):.3g} to {10.954 * math.exp(half):.3g} %"
    intervals = f"vgg11 b8 fp32 39.2 to 40.8 %, vgg13 b8 fp32 × 2 {ends}"
    peak = "the datasheet peak of fp32, 100 TFLOP/s: fp32 dense: a sheet, page 3"
    assert basis(found, views) == f"95 % intervals: {intervals}. Divided by {peak}."


def test_models_are_told_apart_by_what_windows_differ_by() -> None:
    """42 and 38 % within 2 %: apart within their windows; where windows differ by 10 %, they are not."""
    views = [cell("vgg11", 0.42), cell("vgg13", 0.38)]
    assert "vgg11 uses 42 %" in closing(views).sentence
    wide = [
        cell(model, ratio, windows_low_ratio=0.9 * ratio, windows_high_ratio=1.1 * ratio)
        for model, ratio in (("vgg11", 0.42), ("vgg13", 0.38))
    ]
    found = closing(wide)
    assert found.sentence == "At fp32, batch 8, vgg11 and vgg13 cannot be distinguished: the intervals overlap."
    assert "vgg11 b8 fp32 37.8 to 46.2 %, vgg13 b8 fp32 34.2 to 41.8 %." in basis(found, wide)
