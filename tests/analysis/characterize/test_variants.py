"""Likeness in one variant and in another: who is in a picture, and which pairs it moves, from made-up shares."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.characterize.similarity import distance_changes, pictures
from analysis.characterize.summary import comparable_mixes, mixes
from reports.characterize import answer
from reports.characterize.answer import figure as variants_figure
from reports.characterize.answer import look
from reports.characterize.sections import to_text
from reports.shared import figure_style
from results.records.characterization import Characterization
from tests.support.made_up.made_up_characterization import NET, TALK, recording, rows

TURNED = {call: {2.0: 0.0, 4.0: 0.0, 1.0: 4.0}.get(time, time) for call, time in NET.items()}
"""NET without its convolutions: two products of 4 each, and 0.5 each of two others."""

OURS = 2 * 6 / math.sqrt(4 + 16 + 4 + 0.25 + 0.25) / math.sqrt(36 + 1 + 4)
"""Cosine of NET (convolution 2 and 4, products 2, relu .5, Adam .5) and TALK (products 6, embedding 1, spin 2)."""

THEIRS = 8 * 6 / math.sqrt(64 + 0.25 + 0.25) / math.sqrt(36 + 1 + 4)


@pytest.fixture(scope="module")
def data() -> Characterization:
    """net as coded and as in the paper, talk in the one form that it has."""
    parts = [
        rows(recording(0, "net@small", variant="as_coded"), NET),
        rows(recording(1, "talk@small"), TALK),
        rows(recording(2, "net@as_paper@small", variant="as_paper"), TURNED),
    ]
    return parts[0].with_rows(parts[1]).with_rows(parts[2])


def test_a_picture_has_each_workload_once_and_the_only_form_of_those_that_have_one(data):
    found = pictures(comparable_mixes(mixes(data)))
    assert {variant: [each.label for each in mine] for variant, mine in found.items()} == {
        "as_coded": ["net@small", "talk@small"],
        "as_paper": ["net@small", "talk@small"],
    }
    assert [each.recording.recording for each in found["as_coded"]] == [0, 1]
    assert [each.recording.recording for each in found["as_paper"]] == [2, 1]


def test_a_pair_is_as_far_apart_as_counted_by_hand_in_each(data):
    (pair,) = distance_changes(pictures(comparable_mixes(mixes(data))))
    assert (pair.left, pair.right) == ("net@small", "talk@small")
    assert pair.distances == {"as_coded": pytest.approx(1 - OURS), "as_paper": pytest.approx(1 - THEIRS)}
    assert pair.change == pytest.approx(THEIRS - OURS)


def test_it_is_told_listed_and_drawn_on_one_scale(data):
    seen = look(data)
    lines = [line.split() for line in to_text(seen).splitlines()]
    assert ["net@small", "talk@small", f"{1 - OURS:.2f}", f"{1 - THEIRS:.2f}"] in lines
    assert [row["variant"] for row in answer.rows(seen)] == ["as_coded", "as_paper"]
    with figure_style.theme():
        drawn = answer.figure(seen)
        reproduced = answer.figure(look(data, reproduce="fathom"))
    assert drawn is not None
    assert [axes.get_title("left") for axes in drawn.axes] == ["as coded", "as in the paper"]
    assert len({axes.get_xlim() for axes in drawn.axes}) == 1
    assert reproduced is not None
    assert len(reproduced.axes) == 3


def test_nothing_is_told_of_variants_where_no_workload_has_two_or_stands_alone(data):
    without = [each for each in mixes(data) if each.recording.recording < 2]
    assert pictures(comparable_mixes(without)) == {}
    alone = [each for each in mixes(data) if each.recording.recording != 1]
    assert pictures(comparable_mixes(alone)) == {}


def test_one_variant_is_no_picture_of_two() -> None:
    merge = SimpleNamespace(members=("a", "b"), height=0.1)
    for trees in ({"own": (merge,)}, {"own": (merge,), "as_paper": ()}):
        seen: Any = SimpleNamespace(pictures=trees, reproduce=False)
        assert variants_figure(seen) is None
