"""Every figure from made-up tables: right numbers in the right place, words for gaps, nothing covered or clipped."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from reports.shared import figure_style
from reports.sweep.figures import backward_ratio, cleaning_stages, epoch_times, gallery
from reports.sweep.figures import counters as figures_counters
from reports.sweep.figures import methods as figures_methods
from reports.sweep.figures import profiles as figures_profiles
from results.records.answers import Utilization, WorkTime
from results.records.counts import Agreement, ProfileCount, Ratio
from results.records.rows import Record
from tests.support.figure_texts import covered
from tests.support.made_up import made_up_tables
from tests.support.made_up.made_up_tables import Grid

ROOT = Path(__file__).parents[3]
NAMES = {
    "utilization_by_model",
    "utilization_by_batch",
    "utilization_by_method",
    "utilization_by_method_post2021",
    "forward_flops_by_counter",
    "backward_flops_by_counter",
    "flops_per_image_by_batch",
    "flops_by_operation",
    "backward_forward_by_model",
    "backward_forward_by_operation",
    "epoch_time_by_batch",
}
SMALL = Grid(models=("resnet18", "mobilenet_v2"), batches=(1, 64))
CELL = {"cell_id": "c", "attempt": 1, "model": "m", "batch_size": 8, "precision": "fp32"}


@pytest.fixture
def frame(tmp_path: Path) -> Any:
    """Records → the table that a reader gets of their file."""

    def read(*rows: Record, record: type[Record] | None = None) -> pd.DataFrame:
        kind = record or type(rows[0])
        return gallery.read(made_up_tables.write(tmp_path / "table.csv", rows, kind), kind)

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
    (figure,) = figures_methods.by_method(frame(*[fraction(r, m) for m, r in ratios.items()])).values()
    (axes,) = figure.axes
    looks = hexes(figure_style.method_looks(["theory, fvcore", "one", "batch", "epoch", "exact"]))
    at = {colour: (x, y) for x, y, colour in marks(axes)}
    lanes = [at[looks[name]] for name in ("theory, fvcore", "one", "batch", "epoch", "exact")]
    assert [x for x, _ in lanes] == pytest.approx([42, 10, 41, 39, 40])
    heights = [y for _, y in lanes]
    assert heights == sorted(heights)  # top to bottom, the axis being upside down
    assert axes.get_ylim() == (0.5, -0.5)
    ends = sorted((90 * r, 110 * r) for r in ratios.values())
    assert np.array(sorted(intervals(axes))) == pytest.approx(np.array(ends))
    assert "utilization, % of the datasheet peak, 67.0 TFLOP/s\ntrained in fp32" in figure.get_supxlabel()


def test_a_method_without_a_ratio_is_a_word_in_its_lane_and_never_zero(frame: Any) -> None:
    (figure,) = figures_methods.by_method(frame(fraction(0.4), fraction(None, "one", status="timeout"))).values()
    assert words(figure).count("ran past its limit") == 1
    assert [x for x, _, _ in marks(figure.axes[0])] == pytest.approx([40])


# --- counters ----------------------------------------------------------------------------------------------------


def agreement(counter: str, total: float | None, products: float | None, phase: str = "forward", **more: Any) -> Any:
    status = {} if total is not None else {"status": "timeout", "reason": "slow"}
    known = {"exact_flop": 8 * 3_627_132_928, "total_ratio": total, "ratio": products, **CELL, **status, **more}
    known.pop("precision")
    return Agreement(counter=counter, phase=phase, **known)


def test_a_wrong_backward_can_be_read_beside_a_right_one(frame: Any) -> None:
    """MobileNetV2: FlopCounterMode counts 11,673,083,648 where 1,176,352,256 are right."""
    far = 11_673_083_648 / 1_176_352_256
    rows = [agreement("flop_counter_mode", far, far, "backward"), agreement("flopledger", 1.0, 1.003, "backward")]
    figure = figures_counters.by_counter(frame(*rows))["backward_flops_by_counter"]
    axes = figure.axes[1]
    assert "9.92×" in words(figure)
    assert hollow(axes, yes=True) == [(pytest.approx(far, abs=1e-6), 0)]
    x_of = axes.transAxes.inverted().transform(axes.transData.transform([(1.0, 0), (1.003, 0), (far, 0)]))[:, 0]
    assert x_of[1] - x_of[0] > 0.03  # 0.3 % is visible beside 0
    assert x_of[0] < 0.5 < x_of[2] < 1


def test_a_counter_that_could_not_count_is_a_word(frame: Any) -> None:
    figure = figures_counters.by_counter(frame(agreement("fvcore", 1.0, 1.0), agreement("ptflops", None, None)))
    (drawn,) = figure.values()
    assert words(drawn).count("ran past its limit") == 1
    assert marks(drawn.axes[1]) == []
    without = agreement("ptflops", None, None, exact_flop=None, status="ok", reason="")
    (drawn,) = figures_counters.by_counter(frame(without)).values()
    assert "no exact count" in words(drawn)


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
    (figure,) = figures_profiles.by_batch(frame(*rows), {}).values()
    (axes,) = figure.axes
    assert sorted(hollow(axes, yes=True)) == [(1, 3), (5, 3), (8, 0), (8, 3)]
    assert sorted(hollow(axes, yes=False)) == [(1, 3), (5, 3), (8, 3), (8, 6)]
    assert figure.get_supylabel() == "GFLOP per image"
    assert axes.get_ylim()[0] == 0


def test_a_sum_that_leaves_products_out_is_a_triangle_that_says_at_least(frame: Any) -> None:
    """8 images: 24 GFLOP forward as found, and of the backward pass at least 8 of 48."""
    known = {"found_at_least_flop": 8 * 10**9, "at_least_flop": 48 * 10**9}
    rows = [counted(8, 24 * 10**9, 24 * 10**9), counted(8, None, 48 * 10**9, "backward", **known)]
    (figure,) = figures_profiles.by_batch(frame(*rows), {}).values()
    triangles = [line for line in figure.axes[0].lines if line.get_marker() == "^"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in triangles] == [(8, 1)]
    assert "as found, at least" in words(figure)
    (whole,) = figures_profiles.by_batch(frame(rows[0]), {}).values()
    assert "as found, at least" not in words(whole)
    (figure,) = cleaning_stages.states(frame(*(replace(row, source="kineto") for row in rows)), {}).values()
    triangles = [line for line in figure.axes[1].lines if line.get_marker() == "^" and len(line.get_xdata())]
    assert [line.get_xdata()[0] for line in triangles] == [10**9]
    assert "at least" in words(figure)


def test_the_line_is_the_affine_law_of_the_cleaned_counts(frame: Any) -> None:
    """5 b + 6 GFLOP: 11, 8, 5.75 a sample at batch 1, 2, 8."""
    rows = [counted(b, 0, (5 * b + 6) * 10**9, work=w) for b, w in ((1, "one"), (8, "batch"), (2, "last"))]
    (figure,) = figures_profiles.by_batch(frame(*rows), {}).values()
    (line,) = [line for line in figure.axes[0].lines if line.get_marker() == "None"]
    assert line.get_xdata()[[0, -1]] == pytest.approx([1, 8])
    assert line.get_ydata() == pytest.approx([5 + 6 / b for b in line.get_xdata()])
    rows.append(counted(4, 0, 26 * 10**9 + 1, cell_id="d"))  # one FLOP too much
    (figure,) = figures_profiles.by_batch(frame(*rows), {}).values()
    assert [line for line in figure.axes[0].lines if line.get_marker() == "None"] == []
    assert "on no line" in words(figure)


# --- FLOP by operation -------------------------------------------------------------------------------------------


def test_a_bar_is_what_both_agree_on_and_what_cleaning_changed() -> None:
    numbers = random.Random(3)
    for _ in range(200):
        found, cleaned = numbers.choice([None, 0, numbers.randrange(99)]), numbers.randrange(99)
        bar = figures_profiles.bar_of(found, cleaned)
        assert bar["right"] + bar["under"] == cleaned
        assert bar["right"] + bar["over"] == (found or 0)
        assert not (bar["under"] and bar["over"])
    assert figures_profiles.bar_of(7, None) == Counter(unknown=7)
    assert "unknown" in figures_profiles.bar_of(None, None)


def drawn_flop(figure: Figure, scale: float) -> dict[str, float]:
    """Colour of a verdict → FLOP of all bars that have it."""
    sums: Counter[str] = Counter()
    for axes in figure.axes:
        for bars in axes.containers:
            assert isinstance(bars, BarContainer)
            for patch in bars:
                colour = patch.get_edgecolor() if patch.get_hatch() else patch.get_facecolor()
                sums[to_hex(colour)] += patch.get_width() * scale
    return dict(sums)


def test_bars_are_coloured_right_over_and_under(frame: Any) -> None:
    grid = Grid(models=("resnet18",), batches=(8,))
    rows = made_up_tables.operations(grid, over=(1,), unknown=(4,))
    (figure,) = figures_profiles.by_operation(frame(*rows), {"0000000000000001": "resnet18"}).values()
    looks = hexes(figure_style.verdict_looks())
    layers = made_up_tables.layers("resnet18")
    forward = sum(flop for _, _, flop in layers)
    flop = drawn_flop(figure, 1e9)  # of one image
    assert flop[looks["over"]] == pytest.approx(layers[1][2])  # counted twice
    assert flop[looks["unknown"]] == pytest.approx(layers[4][2])
    assert flop[looks["right"]] == pytest.approx(forward - layers[4][2] + 2 * layers[-1][2])  # linear backward is found
    assert flop[looks["under"]] == pytest.approx(2 * forward - layers[0][2] - 2 * layers[-1][2])
    assert "shapes give no count" in words(figure)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [module for module, _, _ in layers]  # in the order of execution
    assert figure.axes[0].get_ylim()[0] > figure.axes[0].get_ylim()[1]


@pytest.mark.parametrize("model", ["efficientnet_b0", "resnet152"])
def test_a_long_model_fits_on_a_page_and_no_flop_is_lost(frame: Any, model: str) -> None:
    rows = frame(*made_up_tables.operations(Grid(models=(model,), batches=(8,))))
    (figure,) = figures_profiles.by_operation(rows, {}).values()
    bars = figures_profiles._bars(figures_profiles._profile(rows))
    shown, rest = figures_profiles._fitting(bars)
    assert len(figure.axes[0].get_yticklabels()) == len(shown) + bool(rest) <= 54
    total = sum(bar.total() for pair in bars.values() for bar in pair.values())
    assert sum(bar.total() for pair in [*shown.values(), *rest] for bar in pair.values()) == total
    assert total == made_up_tables.MODELS[model].forward + made_up_tables.MODELS[model].backward
    if rest:
        smallest = min(sum(bar.total() for bar in pair.values()) for pair in shown.values())
        assert max(sum(bar.total() for bar in pair.values()) for pair in rest) <= smallest
        assert any(f"{len(rest)} smaller operations" in word for word in words(figure))


def test_blocks_of_a_long_model_are_added_up_verdict_by_verdict() -> None:
    bars = {f"block{i}.conv{j}": {"forward": Counter(right=1, over=j)} for i in range(20) for j in range(1, 5)}
    shown, rest = figures_profiles._fitting(bars)
    assert rest == []
    assert list(shown) == [f"block{i}" for i in range(20)]
    assert shown["block3"]["forward"] == Counter(right=4, over=10)


# --- backward ÷ forward ------------------------------------------------------------------------------------------


def test_ratios_found_cleaned_and_exact_of_a_model(frame: Any) -> None:
    """ResNet-18: 2 - 118,013,952 ÷ 1,813,566,464 = 1.934927."""
    figures = backward_ratio.ratios(frame(*made_up_tables.ratios(Grid(models=("resnet18",), batches=(8,)))))
    left, right = figures["backward_forward_by_model"].axes
    exact = 2 - 118_013_952 / 1_813_566_464
    assert [x for x, _ in hollow(left, yes=True)] == pytest.approx([20_480 / (2 * 1_813_566_464)] * 3)
    assert [x for x, _ in hollow(right, yes=True)] == []
    for axes in (left, right):
        assert [x for x, _ in hollow(axes, yes=False)] == pytest.approx([exact] * 3, abs=1e-6)
        vertical = [line.get_xdata()[0] for line in axes.lines if len({*line.get_xdata()}) == 1 < len(line.get_xdata())]
        assert sorted(vertical) == pytest.approx([exact, 2.0], abs=1e-6)
    kinds = figures["backward_forward_by_operation"].axes[0]
    names = [label.get_text() for label in kinds.get_yticklabels()]
    assert names[:2] == ["convolution", "matmul"]  # the most FLOP first
    last = made_up_tables.layers("resnet18")[-1][2]
    convolved = made_up_tables.MODELS["resnet18"].backward - 2 * last, made_up_tables.MODELS["resnet18"].forward - last
    assert {round(x, 6) for x, y in hollow(kinds, yes=False) if abs(y) < 0.5} == {round(convolved[0] / convolved[1], 6)}
    assert {x for x, y in hollow(kinds, yes=True) if abs(y - 1) < 0.5} == {2.0}


def test_a_kind_whose_backward_was_not_counted_says_so(frame: Any) -> None:
    told = {"source": "torch_profiler", "level": "kind", "name": "convolution", "work": "batch", **CELL}
    rows = [
        Ratio(state="found", forward_flop=9, status="unavailable", reason="20 of 20 calls have no count", **told),
        Ratio(state="cleaned", forward_flop=9, backward_flop=18, ratio=2.0, **told),
    ]
    (figure,) = backward_ratio.ratios(frame(*rows)).values()
    assert "as found: nothing counted" in words(figure)
    assert hollow(figure.axes[0], yes=False) == [(2.0, 0.0)]


def test_a_ratio_far_off_is_written_at_the_edge_and_a_lost_one_is_a_word(frame: Any) -> None:
    rows = [
        Ratio(source="torch_profiler", work="one", state="cleaned", level="model", name="", ratio=40.84, **CELL),
        Ratio(source="torch_profiler", work="batch", state="found", level="model", name="", status="timeout", **CELL),
    ]
    figure = backward_ratio.ratios(frame(*rows))["backward_forward_by_model"]
    assert "40.8 →" in words(figure)
    assert words(figure).count("ran past its limit") == 1
    assert all(axes.get_xlim()[1] < 4 for axes in figure.axes)
    assert [mark for axes in figure.axes for mark in marks(axes)] == []


# --- time per epoch ----------------------------------------------------------------------------------------------


def epoch(time_s: float | None, profiled_s: float | None = None, real_s: float | None = None, **more: Any) -> WorkTime:
    known: dict[str, Any] = {"device": "cpu", "work": "epoch", "items": 10_000, **CELL}
    if time_s is not None:
        known |= {"time_s": time_s, "low_s": time_s - 1, "high_s": time_s + 2}
    return WorkTime(**{**known, "profiled_time_s": profiled_s, "real_time_s": real_s, **more})


def test_epoch_times_profiled_and_not_and_run(frame: Any) -> None:
    rows = [epoch(20.0, 30.0, 21.0), epoch(12.0, 14.0, cell_id="d", batch_size=64)]
    (figure,) = epoch_times.epoch_times(frame(*rows)).values()
    (axes,) = figure.axes
    by_marker = {
        (line.get_marker(), line.get_markerfacecolor() == "white"): list(zip(*line.get_data(), strict=True))
        for line in axes.lines
        if line.get_marker() in "ox"
    }
    assert by_marker[("o", False)] == [(8, 20), (64, 12)]
    assert by_marker[("o", True)] == [(8, 30), (64, 14)]
    assert by_marker[("x", False)] == [(8, 21)]
    ends = [sorted(float(y) for _, y in s) for c in axes.containers for b in c.lines[2] for s in b.get_segments()]
    assert [19, 22] in ends
    assert [11, 14] in ends
    assert figure.get_supylabel() == "time per epoch of 10,000 images, s"
    assert (axes.get_yscale(), axes.get_ylim()[0]) == ("linear", 0)


# --- several recorders -------------------------------------------------------------------------------------------


def test_three_states_of_a_recording_beside_our_own_count(frame: Any) -> None:
    states = {"deduplicated_flop": 24 * 10**9, "exact_flop": 32 * 10**9, "source": "kineto"}
    rows = [
        counted(8, 48 * 10**9, 32 * 10**9, **states),
        counted(8, 48 * 10**9, 32 * 10**9, **{**states, "cell_id": "d"}),
        counted(8, None, None, "backward", source="kineto", status="unavailable"),
        counted(1, 10**9, 10**9, work="one", source="kineto"),
        counted(8, 1, 1),
    ]
    (figure,) = cleaning_stages.states(frame(*rows), {}).values()
    forward, backward = figure.axes
    assert sorted(hollow(forward, yes=True)) == [(3 * 10**9, 0), (6 * 10**9, 0)]
    assert hollow(forward, yes=False) == [(4 * 10**9, 0)]
    strokes = [line.get_xdata() for line in forward.lines if len({*line.get_xdata()}) == 1 < len(line.get_xdata())]
    assert [list(stroke) for stroke in strokes] == [[4 * 10**9] * 2]
    assert words(figure).count("not available") == 1
    assert marks(backward) == []
    assert cleaning_stages.states(frame(counted(8, 1, 1)), {}) == {}


# --- the gallery -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_tables.write_all(tmp_path_factory.mktemp("small"), SMALL)


def test_a_whole_run_has_every_figure_and_no_window_stays_open(small: Path) -> None:
    figures = gallery.figures(small)
    assert {*figures} == NAMES | {"flops_by_operation_mobilenet_v2"}
    assert all(isinstance(figure, Figure) for figure in figures.values())
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_missing_and_empty_tables_make_fewer_figures(tmp_path: Path) -> None:
    assert gallery.figures(tmp_path) == {}
    for name in made_up_tables.FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert gallery.figures(tmp_path) == {}
    for name, (record, _) in made_up_tables.FILES.items():
        made_up_tables.write(tmp_path / name, [], record)
    assert gallery.figures(tmp_path) == {}
    made_up_tables.write(tmp_path / "work_times.csv", made_up_tables.work_times(SMALL), WorkTime)
    assert set(gallery.figures(tmp_path)) == {"epoch_time_by_batch"}


def test_a_file_that_is_another_table_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "work_times.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"work_times\.csv: column cell_id is missing"):
        gallery.figures(tmp_path)


def test_nothing_but_failures_still_makes_figures(tmp_path: Path) -> None:
    lost = dict.fromkeys((("resnet18", 8), ("resnet18", 64)), "out_of_memory")
    figures = gallery.figures(
        made_up_tables.write_all(tmp_path, Grid(models=("resnet18",), batches=(8, 64), lost=lost.items()))
    )
    assert set(figures) >= {"utilization_by_method", "flops_per_image_by_batch", "epoch_time_by_batch"}
    for name in (
        "utilization_by_method",
        "flops_per_image_by_batch",
        "backward_forward_by_model",
        "epoch_time_by_batch",
    ):
        assert "out of memory" in words(figures[name]), name
        assert [mark for axes in figures[name].axes for mark in marks(axes)] == [], name


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_tables.write_all(tmp_path_factory.mktemp("tiny"), Grid(models=("alexnet",), batches=(8,)))


def test_the_same_tables_make_the_same_bytes(tiny: Path) -> None:
    some = ("backward_flops_by_counter", "flops_by_operation", "epoch_time_by_batch")
    drawn = gallery.figures(tiny), gallery.figures(tiny)
    first, second = ({name: figure_style.render(figures[name]) for name in some} for figures in drawn)
    assert first == second
    assert all(b"<dc:date>" not in each["svg"] for each in first.values())


def test_figures_need_no_torch_and_no_hardware(tiny: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from reports.sweep.figures import gallery; from reports.shared import figure_style as style\n"  # noqa: E501
        "with style.theme(): names = set(gallery.figures(Path(sys.argv[1])))\n"
        "assert len(names) == 10, names\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'torch', 'measure', 'workloads', 'pynvml', 'tests'})"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tiny)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")


OLDER = ("utilization_by_model", "utilization_by_batch")
"""Held to the same in test_reports.py."""

LONG = "torchvision_deeplabv3_mobilenet_v3_large_with_a_very_long_name"
LOST = {("vgg19", 128): "out_of_memory"}.items()
CROWDS = {
    "some": Grid(models=("vgg19", "resnet18", "wide_resnet50_2", "mobilenet_v2", "vit_b_16"), lost=LOST),
    "long": Grid(models=("resnet18", "vit_b_16"), batches=(1, 8, 512), names={"resnet18": LONG}.items()),
}
LARGE = {
    "suite": Grid(models=tuple(made_up_tables.MODELS), lost=LOST),
    "all": Grid(
        batches=tuple(2**i for i in range(11)),
        precisions=("fp32", "tf32", "amp-bf16"),
        variants=("", "layout=channels_last, compile=true"),
        repeats=2,
        lost=LOST,
    ),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_no_text_covers_another_or_leaves_the_page(tmp_path: Path, crowd: str) -> None:
    for name, figure in gallery.figures(made_up_tables.write_all(tmp_path, CROWDS[crowd])).items():
        if name not in OLDER:
            assert covered(figure) == [], name


@pytest.mark.slow
@pytest.mark.parametrize("crowd", LARGE)
def test_no_text_of_a_large_sweep_covers_another(tmp_path: Path, crowd: str) -> None:
    for name, figure in gallery.figures(made_up_tables.write_all(tmp_path, LARGE[crowd])).items():
        if name not in OLDER:
            assert covered(figure) == [], name
            assert figure.get_size_inches()[1] <= 11.5, name


# --- what figures share ------------------------------------------------------------------------------------------


def test_looks_can_be_told_apart_without_colour() -> None:
    methods = figure_style.method_looks(list(figures_methods.ORDER))
    assert len({marker for _, marker in methods.values()}) == len(methods)
    assert len({hatch for _, hatch in figure_style.verdict_looks().values()}) == 4
    assert len({marker for _, marker in figure_style.phase_looks().values()}) == 2
