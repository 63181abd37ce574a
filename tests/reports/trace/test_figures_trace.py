"""Figures of a recorded profile: right numbers in the right cell, bar and lane; words for gaps; nothing covered."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from reports.shared import figure_style
from reports.trace import figures as trace_figures
from results.records.operations import OperationInstance
from tests.support.figure_texts import covered, texts
from tests.support.made_up import made_up_trace
from tests.support.made_up.made_up_trace import G


def drawn(*instances: OperationInstance) -> dict[str, Figure]:
    """The figures of these operations."""
    return trace_figures.figures(made_up_trace.trace(instances))


def cells(figure: Figure) -> dict[tuple[float, float], tuple[str, str]]:
    """(column, line) → text and colour of a cell of the table."""
    (axes,) = figure.axes
    colours = {
        (round(p.get_x() - 0.05), round(p.get_y() + 0.42)): to_hex(p.get_edgecolor())
        for p in axes.patches
        if isinstance(p, Rectangle)
    }
    found = {}
    for text in axes.texts:
        x, y = text.get_position()
        found[(int(x), int(y))] = (text.get_text(), colours.get((int(x), int(y)), ""))
    return found


def colour(verdict: str) -> str:
    return to_hex(figure_style.verdict_looks()[verdict][0])


def bars(figure: Figure) -> list[tuple[float, float, float]]:
    """(line, begin, length) of each bar."""
    return [
        (round(p.get_y() + p.get_height() / 2, 2), round(p.get_x(), 6), round(p.get_width(), 6))
        for p in figure.axes[0].patches
        if isinstance(p, Rectangle) and p.get_width()
    ]


# --- how often each product was counted ------------------------------------------------------------------------------


def test_the_table_shows_the_step_with_the_most_faults_before_and_after() -> None:
    figure = drawn(*made_up_trace.instances())["counts_by_operation"]
    table = cells(figure)
    right = colour("right")
    # columns: kernels, found, cleaned of forward, then of backward
    assert [table[(x, 0)] for x in range(6)] == [
        ("16", ""),
        ("16", colour("over")),
        ("1", right),
        ("1", ""),
        ("1", right),
        ("1", right),
    ]
    assert [table[(x, 1)] for x in (1, 2, 4, 5)] == [("1", right), ("1", right), ("2", right), ("2", right)]
    assert [table[(x, 2)] for x in (1, 2)] == [("0", colour("under")), ("1", right)]
    assert table[(6, 0)][0] == "fft_tiling"
    assert table[(6, 2)][0] == "renamed_kernel"
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"layer{layer} 2×3×224×224 · 64×3×7×7" for layer in range(3)]
    assert "step 0, the one with the most wrong" in " ".join(figure.get_supxlabel().split())


def test_recomputation_stands_beside_the_forward_product_of_its_module() -> None:
    forward = made_up_trace.instance(0, "forward", G, 1, module="a")
    other = made_up_trace.instance(1, "forward", G, 1, module="b")
    again = made_up_trace.instance(2, "recompute", G, 0, module="b")
    stranger = made_up_trace.instance(3, "recompute", G, 1, module="c")
    figure = drawn(forward, other, again, stranger)["counts_by_operation"]
    table = cells(figure)
    assert (4, 0) not in table
    assert table[(4, 1)] == ("0", colour("under"))
    assert table[(4, 2)] == ("1", colour("right"))
    assert len(figure.axes[0].get_yticklabels()) == 3


def test_what_has_no_count_is_a_question_mark_and_fractions_stay() -> None:
    """A grouped convolution counted as one of 64 groups, and one whose sizes say nothing."""
    group = made_up_trace.instance(0, "forward", 64 * G, 1, raw_flop=G, verdict="under", reason="grouped")
    unknown = made_up_trace.instance(1, "forward", None, 1, raw_flop=5, repaired_flop=5)
    lost = made_up_trace.instance(2, "forward", G, 0, raw_flop=None, deduplicated_flop=None, reason="no_kernel")
    table = cells(drawn(group, unknown, lost)["counts_by_operation"])
    assert [table[(x, 2)] for x in (1, 2)] == [("?", colour("under")), ("1", colour("right"))]
    assert table[(1, 0)] == ("0.0156", colour("under"))
    assert [table[(x, 1)] for x in (1, 2)] == [("?", colour("unknown"))] * 2


# --- bars ------------------------------------------------------------------------------------------------------------


def test_bars_are_flop_of_a_mean_step_by_state_and_phase() -> None:
    """Two steps: 21 + 22, 6 + 22, 12 + 22 GFLOP."""
    figure = drawn(*made_up_trace.instances())["flop_per_step"]
    assert bars(figure) == [(0, 0, 10.5), (0, 10.5, 11), (1, 0, 3), (1, 3, 11), (2, 0, 6), (2, 6, 11)]
    assert figure.get_supxlabel().startswith("GFLOP of a step, mean of 2")


def test_a_bar_that_leaves_a_call_out_says_at_least_and_its_ratio_is_a_word() -> None:
    """An attention without a count: the bars of the convolutions are no totals, and the ratio of all is none."""
    attention = made_up_trace.instance(
        12, "forward", None, 1, kind="attention", name="aten::scaled_dot_product_attention"
    )
    back = made_up_trace.instance(13, "backward", None, 1, kind="attention", forward_index=12)
    drawings = drawn(*made_up_trace.instances(), attention, back)
    labels = [label.get_text() for label in drawings["flop_per_step"].axes[0].get_yticklabels()]
    assert labels == ["raw\nat least", "deduplicated\nat least", "repaired\nat least"]
    ratios = drawings["backward_forward_by_kind"]
    assert [t.get_text() for t in ratios.axes[0].get_yticklabels()] == ["convolution", "attention", "all"]
    assert [t.get_text() for t in texts(ratios)].count("not all counted") == 4
    assert len(bars(ratios)) == 2


def test_ratios_by_kind_before_and_after_beside_two() -> None:
    linear = [
        made_up_trace.instance(12, "forward", G, 2, kind="matmul"),
        made_up_trace.instance(13, "backward", G, 2, 2, kind="matmul", forward_index=12),
    ]
    figure = drawn(*made_up_trace.instances(), *linear)["backward_forward_by_kind"]
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["convolution", "matmul", "all"]
    assert bars(figure) == [
        (-0.19, 0, round(22 / 21, 6)),
        (0.19, 0, round(22 / 12, 6)),
        (0.81, 0, 1),
        (1.19, 0, 2),
        (1.81, 0, round(24 / 23, 6)),
        (2.19, 0, round(24 / 13, 6)),
    ]
    assert [line.get_xdata()[0] for line in axes.lines] == [2]


def test_a_recording_without_a_backward_pass_has_no_ratios() -> None:
    assert "backward_forward_by_kind" not in drawn(made_up_trace.instance(0, "forward", G, 1))


# --- a step in time --------------------------------------------------------------------------------------------------


def test_the_timeline_is_the_middle_step_by_phase() -> None:
    """The first of two steps: 18 kernels forward and 5 backward, 1 ms every 1.5 ms."""
    figure = drawn(*made_up_trace.instances())["timeline"]
    (axes,) = figure.axes
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert lanes == ["forward", "backward"]
    spans = [[path.get_extents().intervalx for path in lane.get_paths()] for lane in axes.collections]
    assert [len(lane) for lane in spans] == [18, 5]
    assert np.allclose(spans[0], [(1.5 * n, 1.5 * n + 1) for n in range(18)])
    assert np.allclose(spans[1], [(1.5 * n, 1.5 * n + 1) for n in range(18, 23)])
    assert {t.get_text() for t in axes.texts} == {"18.0 ms", "5.00 ms"}
    assert figure.get_supxlabel().startswith("ms since step 0 began")


# --- all -------------------------------------------------------------------------------------------------------------


def test_a_recording_without_operations_has_no_figures() -> None:
    trace = made_up_trace.trace()
    empty: Any = SimpleNamespace(instances=(), kernels=trace.cleaned.kernels.iloc[:0])
    assert trace_figures.figures(replace(trace, cleaned=empty)) == {}


CROWDS = {
    "one": made_up_trace.instances(layers=1, steps=1),
    "few": made_up_trace.instances(),
    "many": made_up_trace.instances(layers=60, steps=1),
    "recomputed": (
        *made_up_trace.instances(steps=1),
        *(made_up_trace.instance(6 + n, "recompute", G, 1, module=f"layer{n}", step=0) for n in range(3)),
    ),
    "long names": tuple(
        made_up_trace.instance(
            n, "forward", G, 83, module="encoder.layers." * 5 + str(n), reason="renamed_kernel, fft_tiling"
        )
        for n in range(4)
    ),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_no_text_covers_another_or_leaves_the_page(crowd: str) -> None:
    for name, figure in drawn(*CROWDS[crowd]).items():
        assert covered(figure) == [], name
        assert figure.get_size_inches()[1] <= 11.5
