"""Definition, law: figures of rows made by hand and of a published run have the right values, and words for gaps."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.devices.peaks import stand_in_warning
from cleaning.reconcile.derived import Built
from cleaning.reconcile.run import build
from reports.shared import figure_style
from reports.shared.layout import to_csv
from reports.sweep import epoch_figures, profile_figures, utilization_figures
from reports.sweep import figures as gallery
from results.records.answers import Utilization, WorkTime
from results.records.counts import CleanedOperation, ProfileCount, Ratio
from results.records.rows import Record
from results.store.layout import read_records, table
from results.store.reading import read_operation_table, read_run
from results.store.store import read_profile


def texts(figure: Figure) -> list[Any]:
    """Every text that is shown: not empty, not invisible, and no label of a tick beyond the end of its axis."""
    figure.draw_without_rendering()
    beyond = set()
    for axes in figure.axes:
        for axis, place in ((axes.xaxis, 0), (axes.yaxis, 1)):
            low, high = sorted(axis.get_view_interval())
            labels = axis.get_ticklabels() + axis.get_ticklabels(minor=True)
            beyond |= {t for t in labels if not low <= t.get_position()[place] <= high}
    found = figure.findobj(Text)
    return [t for t in found if t.get_visible() and t.get_text().strip() and t not in beyond]


def covered(figure: Figure) -> list[str]:
    """Texts that leave the page or cover one another."""
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts(figure)]
    page, faults = figure.bbox, []
    for i, (text, box) in enumerate(boxes):
        if not (box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1):
            faults.append(f"{text!r} leaves the page")
        for other, place in boxes[:i]:
            apart = min(box.x1, place.x1) - max(box.x0, place.x0), min(box.y1, place.y1) - max(box.y0, place.y0)
            if min(apart) > 1:
                faults.append(f"{text!r} covers {other!r}")
    return faults


RUN = Path(__file__).parents[3] / "results/published/amd-epyc-2-cores-2026-11-29"
CELL = {"cell_id": "c", "attempt": 1, "model": "m", "batch_size": 8, "precision": "fp32"}


@pytest.fixture
def frame(tmp_path: Path) -> Any:
    """Records → the table that a reader gets of their file."""

    def read(*rows: Record) -> pd.DataFrame:
        (tmp_path / "table.csv").write_text(to_csv(rows, type(rows[0])), encoding="utf-8")
        return table(type(rows[0]), read_records(tmp_path / "table.csv", type(rows[0])))

    return read


def marks(axes: Any) -> list[tuple[float, float, str]]:
    """(x, y, colour) of every mark with a marker."""
    return [
        (float(x), float(y), to_hex(line.get_color()))
        for line in axes.lines
        if line.get_marker() not in ("None", "|", "_", "", None)
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def hollow(axes: Any, *, yes: bool) -> list[tuple[float, float]]:
    """Where the hollow marks of a panel are, or the filled ones."""
    return [
        (float(x), float(y))
        for line in axes.lines
        if line.get_marker() not in ("None", "", None) and (line.get_markerfacecolor() in ("none", "white")) is yes
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def intervals(axes: Any) -> list[list[float]]:
    """The two ends of each interval along x."""
    bars = [bar for c in axes.containers if isinstance(c, ErrorbarContainer) for bar in c.lines[2]]
    return [[float(x) for x, _ in segment] for bar in bars for segment in bar.get_segments()]


def words(figure: Figure) -> list[str]:
    return [t.get_text() for t in figure.findobj(mpl.text.Text) if t.get_text().strip()]


def hexes(looks: figure_style.Looks) -> dict[str, str]:
    return {name: to_hex(colour) for name, (colour, _) in looks.items()}


# --- utilization by method ---------------------------------------------------------------------------------------


def fraction(ratio: float | None, method: str = "exact", **more: Any) -> Utilization:
    source = {"exact": "flopledger", "theory": "fvcore"}.get(method, "torch_profiler")
    known: dict[str, Any] = {"device": "cuda", "denominator": "datasheet", "numerator_source": source, **CELL}
    if ratio is not None:
        ends = {"utilization_low_ratio": 0.9 * ratio, "utilization_high_ratio": 1.1 * ratio}
        known |= {"utilization_ratio": ratio, "peak_flop_per_s": 67e12, **ends}
    return Utilization(**{**known, "method": method, **more})


def test_each_method_has_a_lane_with_its_ratio_in_percent_and_its_interval(frame: Any) -> None:
    ratios = {"theory": 0.42, "one": 0.1, "batch": 0.41, "epoch": 0.39, "exact": 0.4}
    (figure,) = utilization_figures.by_method(frame(*[fraction(r, m) for m, r in ratios.items()])).values()
    (axes,) = figure.axes
    looks = hexes(figure_style.looks(["theory, fvcore", "one", "batch", "epoch", "exact"], "method"))
    at = {colour: (x, y) for x, y, colour in marks(axes)}
    lanes = [at[looks[name]] for name in ("theory, fvcore", "one", "batch", "epoch", "exact")]
    assert [x for x, _ in lanes] == pytest.approx([42, 10, 41, 39, 40])
    heights = [y for _, y in lanes]
    assert heights == sorted(heights)  # top to bottom, the axis being upside down
    assert axes.get_ylim() == (0.5, -0.5)
    ends = sorted((90 * r, 110 * r) for r in ratios.values())
    assert np.array(sorted(intervals(axes))) == pytest.approx(np.array(ends))
    assert "utilization, % of the datasheet peak, 67.0 TFLOP/s\ntrained in fp32" in figure.get_supxlabel()


# --- FLOP per image by batch size --------------------------------------------------------------------------------


def counted(
    items: int, found: int | None, cleaned: int | None, phase: str = "forward", work: str = "batch", **more: Any
) -> Any:
    known = {"device": "cpu", "source": "torch_profiler", **CELL, **more}
    return ProfileCount(work=work, items=items, phase=phase, found_flop=found, cleaned_flop=cleaned, **known)


def test_rings_are_what_was_found_and_dots_what_cleaning_left_per_image(frame: Any) -> None:
    rows = [
        counted(1, 3 * 10**9, 3 * 10**9, work="one"),
        counted(8, 24 * 10**9, 24 * 10**9),
        counted(5, 15 * 10**9, 15 * 10**9, work="last"),
        counted(8, 0, 48 * 10**9, "backward"),
        counted(10_000, 10**15, 10**15, work="epoch"),
    ]
    (figure,) = profile_figures.by_batch(frame(*rows), {}).values()
    (axes,) = figure.axes
    assert sorted(hollow(axes, yes=True)) == [(1, 3), (5, 3), (8, 0), (8, 3)]
    assert sorted(hollow(axes, yes=False)) == [(1, 3), (5, 3), (8, 3), (8, 6)]
    assert figure.get_supylabel() == "GFLOP per image"
    assert axes.get_ylim()[0] == 0


def test_a_sum_that_leaves_products_out_is_a_triangle_that_says_at_least(frame: Any) -> None:
    """8 images: 24 GFLOP forward as found, and of the backward pass at least 8 of 48."""
    known = {"found_at_least_flop": 8 * 10**9, "at_least_flop": 48 * 10**9}
    rows = [counted(8, 24 * 10**9, 24 * 10**9), counted(8, None, 48 * 10**9, "backward", **known)]
    (figure,) = profile_figures.by_batch(frame(*rows), {}).values()
    triangles = [line for line in figure.axes[0].lines if line.get_marker() == "^"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in triangles] == [(8, 1)]
    assert "as found, at least" in words(figure)
    (whole,) = profile_figures.by_batch(frame(rows[0]), {}).values()
    assert "as found, at least" not in words(whole)


# --- FLOP by operation -------------------------------------------------------------------------------------------


def test_a_bar_is_what_both_agree_on_and_what_cleaning_changed(frame: Any) -> None:
    numbers = random.Random(3)
    pairs = [(numbers.choice([None, 0, numbers.randrange(99)]), numbers.randrange(99)) for _ in range(200)]
    products = [product(i, "forward", *pair, f"layer{i}") for i, pair in enumerate([*pairs, (7, None), (None, None)])]
    *bars, some, nothing = profile_figures.bars_of(frame(*products)).to_dict("records")
    for (found, cleaned), bar in zip(pairs, bars, strict=True):
        assert bar["right"] + bar["under"] == cleaned
        assert bar["right"] + bar["over"] == (found or 0)
        assert not (bar["under"] and bar["over"])
    assert some == {"right": 0, "under": 0, "over": 0, "unknown": 7, "uncounted": 1}
    assert nothing == {**some, "unknown": 0}


def product(index: int, phase: str, found: int | None, cleaned: int | None, name: str) -> CleanedOperation:
    more = {"source": "torch_profiler", "work": "one", "kind": "convolution", "verdict": "right"}
    forward = None if phase == "forward" else index
    return CleanedOperation(
        cell_id="c", attempt=1, index=index, name="aten::conv2d", phase=phase, module=name, forward_index=forward,
        found_flop=found, cleaned_flop=cleaned, **more,
    )  # fmt: skip


def test_a_long_model_fits_on_a_page_and_no_flop_is_lost(frame: Any) -> None:
    """Of 156 operations the smallest are summed up."""
    rows = frame(*(product(index, "forward", 9 + index, 9 + index, f"layer{index}") for index in range(156)))
    (figure,) = profile_figures.by_operation(rows, {}).values()
    bars = profile_figures.bars_of(profile_figures.profile_of(rows))
    names, rest = profile_figures.fitting_bars(bars)
    assert len(figure.axes[0].get_yticklabels()) == len(names) + (len(rest) > 0) <= 54
    assert bars.loc[names, "right"].sum() + rest["right"].sum() == 156 * 9 + 155 * 156 // 2


# --- backward ÷ forward ------------------------------------------------------------------------------------------


def ratio(work: str, state: str, forward: int, backward: int, kind: str = "") -> Ratio:
    more = {"source": "torch_profiler" if work else "flopledger", "level": "kind" if kind else "model", "name": kind}
    exact = None if kind else 1.9
    return Ratio(
        work=work, state=state, forward_flop=forward, backward_flop=backward, ratio=backward / forward,
        exact_ratio=exact, **more, **CELL,
    )  # fmt: skip


def test_ratios_found_cleaned_and_exact_of_a_model(frame: Any) -> None:
    """100 FLOP forward, 90 of convolutions; of 190 backward those of convolutions, 170, were filled in by cleaning."""
    works = ("one", "batch", "epoch")
    rows = [ratio("", "cleaned", 100, 190)]
    for work in works:
        rows += [ratio(work, "found", 100, 20), ratio(work, "cleaned", 100, 190)]
        rows += [ratio(work, "found", 90, 0, "convolution"), ratio(work, "cleaned", 90, 170, "convolution")]
        rows += [ratio(work, state, 10, 20, "matmul") for state in ("found", "cleaned")]
    figures = profile_figures.ratios(frame(*rows))
    (axes,) = figures["backward_forward_by_model"].axes
    assert [x for x, _ in hollow(axes, yes=True)] == pytest.approx([0.2] * 3)
    assert [x for x, _ in hollow(axes, yes=False)] == pytest.approx([1.9] * 3)
    vertical = [line.get_xdata()[0] for line in axes.lines if len({*line.get_xdata()}) == 1 < len(line.get_xdata())]
    assert sorted(vertical) == pytest.approx([1.9, 2.0])
    kinds = figures["backward_forward_by_operation"].axes[0]
    names = [label.get_text() for label in kinds.get_yticklabels()]
    assert names == ["convolution", "matmul"]  # the most FLOP first
    assert [x for x, y in hollow(kinds, yes=False) if abs(y) < 0.5] == pytest.approx([170 / 90] * 3)
    assert {x for x, y in hollow(kinds, yes=True) if abs(y - 1) < 0.5} == {2.0}
    (own,) = profile_figures.ratios(frame(ratio("", "cleaned", 90, 170, "convolution"))).values()
    words = {
        name: {text.get_text() for text in figure.findobj(Text)} for name, figure in (("own", own), *figures.items())
    }
    assert [name for name, shown in words.items() if "hollow: as found" in shown] == [*figures]  # where a profile is


# --- time per epoch ----------------------------------------------------------------------------------------------


def epoch(time_s: float | None, profiled_s: float | None = None, real_s: float | None = None, **more: Any) -> WorkTime:
    known: dict[str, Any] = {"device": "cpu", "work": "epoch", "items": 10_000, **CELL}
    if time_s is not None:
        known |= {"time_s": time_s, "low_s": time_s - 1, "high_s": time_s + 2}
    return WorkTime(**{**known, "profiled_time_s": profiled_s, "real_time_s": real_s, **more})


def test_epoch_times_profiled_and_not_and_run() -> None:
    rows = [epoch(20.0, 30.0, 21.0)]
    rows += [epoch(12.0 + s, 14.0 + s, cell_id=f"d{s}", batch_size=64) for s in (0, 2)]  # a repeat: at their mean
    (figure,) = epoch_figures.epoch_times(rows).values()
    (axes,) = figure.axes
    by_marker = {
        (line.get_marker(), line.get_markerfacecolor() == "white"): list(zip(*line.get_data(), strict=True))
        for line in axes.lines
        if line.get_marker() in "ox"
    }
    assert by_marker[("o", False)] == [(8, 20), (64, 13)]
    assert by_marker[("o", True)] == [(8, 30), (64, 15)]
    assert by_marker[("x", False)] == [(8, 21)]
    ends = [sorted(float(y) for _, y in s) for c in axes.containers for b in c.lines[2] for s in b.get_segments()]
    assert [19, 22] in ends
    assert [11, 16] in ends
    assert figure.get_supylabel() == "time per epoch of 10,000 images, s"
    assert (axes.get_yscale(), axes.get_ylim()[0]) == ("linear", 0)


# --- the gallery -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built() -> Built:
    """What is derived from a published run."""
    return build(read_run(RUN), partial(read_operation_table, RUN), partial(read_profile, RUN))


@pytest.fixture(scope="module")
def whole(built: Built) -> dict[str, Figure]:
    return gallery.figures(built)


def test_no_text_of_a_run_covers_another_or_leaves_the_page(whole: dict[str, Figure]) -> None:
    assert {name: boxes for name, figure in whole.items() if (boxes := covered(figure))} == {}


def test_tables_without_rows_make_fewer_figures(built: Built) -> None:
    nothing = Built((), (), (), ())
    assert gallery.figures(nothing) == {}
    assert set(gallery.figures(replace(nothing, work_times=built.work_times))) == {"epoch_time_by_batch"}


def test_each_figure_of_a_stand_in_device_says_that_no_hardware_was_measured(built: Built) -> None:
    marks = (stand_in_warning("Stand-in of NVIDIA H100 80GB HBM3"),)
    marked = replace(built, utilization=tuple(replace(row, warnings=marks) for row in built.utilization))
    for run, is_marked in ((built, False), (marked, True)):
        figures = gallery.figures(run)
        at_the_edge = {gallery.NO_HARDWARE in {text.get_text() for text in each.texts} for each in figures.values()}
        assert at_the_edge == {is_marked}


def test_a_method_without_a_ratio_is_a_word_in_its_lane_and_never_zero(frame: Any) -> None:
    (figure,) = utilization_figures.by_method(frame(fraction(0.4), fraction(None, "one", status="timeout"))).values()
    assert words(figure).count("ran past its limit") == 1
    assert len(marks(figure.axes[0])) == 1
