"""Where ranks are, what their axes may be, and how long a pipeline waits."""

from __future__ import annotations

from fractions import Fraction

import pytest

from analysis.parallel import Coordinates, RankGrid, grid_of, parse_sizes


def test_the_tensor_axis_is_innermost_and_the_pipeline_outermost():
    grid = RankGrid(dp=2, tp=4, pp=3)
    assert grid.world == 24
    assert grid.coordinates(0) == Coordinates(0, 0, 0)
    assert grid.coordinates(3) == Coordinates(0, 0, 3)
    assert grid.coordinates(4) == Coordinates(0, 1, 0)
    assert grid.coordinates(8) == Coordinates(1, 0, 0)
    assert [grid.rank(each.pp, each.dp, each.tp) for each in grid.places()] == list(range(24))


def test_the_bubble_is_what_a_stage_waits_of_a_step():
    """Stage 0 of p works 2m units of time and the step takes 2(m + p − 1) of them: m = 4, p = 3 → 2 of 6."""
    assert RankGrid(pp=3, microbatches=4).bubble == Fraction(2, 6)
    assert RankGrid(microbatches=4).bubble == 0


def test_micro_batches_in_flight_follow_the_schedule():
    assert [RankGrid(pp=4, microbatches=8).in_flight(stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [RankGrid(pp=4, microbatches=2).in_flight(stage) for stage in range(4)] == [2, 2, 2, 1]
    assert RankGrid(pp=4, microbatches=8, schedule="gpipe").in_flight(3) == 8


def test_a_plan_that_is_none_is_one_line():
    for text, words in {
        "dp": "expected AXIS=N",
        "dp=0": "N of 1 or more",
        "dp=2,dp=2": "dp twice",
        "data=2": "expected the axes dp, tp, pp, got 'data'",
        "cp=2": "cp is not counted yet",
    }.items():
        with pytest.raises(ValueError, match=words):
            parse_sizes(text)
    assert parse_sizes("tp=2, ep=1") == {"dp": 1, "tp": 2, "pp": 1}


def test_a_batch_that_does_not_divide_is_one_line():
    with pytest.raises(ValueError, match="multiple of dp=4, got 6; nearest 8"):
        grid_of(parse_sizes("dp=4"), 6)
    with pytest.raises(ValueError, match="divide a replica's 6 samples, got 4; nearest 3"):
        grid_of(parse_sizes("pp=2"), 6, 4)
    with pytest.raises(ValueError, match="at most 1024 ranks, got 2048"):
        grid_of(parse_sizes("dp=256,tp=8"), 256)
    assert grid_of(parse_sizes("pp=2"), 6).microbatches == 6
    assert grid_of(parse_sizes("dp=2"), 6).microbatches == 1
