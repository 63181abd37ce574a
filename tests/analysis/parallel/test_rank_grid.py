"""Definition, law, injected fault: places of ranks and names of plans by hand; a wrong plan is one line."""

import pytest

from analysis.parallel.rank_grid import Coordinates, RankGrid, grid_of, parse_plan, parse_sizes


def test_experts_are_shared_over_the_data_axis():
    """dp=6, tp=2: six ranks of one shard see other tokens; three of them have all experts together, so that four ranks
    of the twelve have the same ones."""
    grid = RankGrid(dp=6, tp=2, ep=3)
    assert grid.world == 12
    groups = {"dp": 6, "experts": 12 // 3, "ep": 3, "pp": 1, "tp": 2, "elsewhere": 0}
    assert {group: grid.group_size(group) for group in groups} == groups


def test_micro_batches_in_flight_follow_the_schedule():
    assert [RankGrid(pp=4, microbatches=8).in_flight(stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [RankGrid(pp=4, microbatches=2).in_flight(stage) for stage in range(4)] == [2, 2, 2, 1]
    assert RankGrid(pp=4, microbatches=8, schedule="gpipe").in_flight(3) == 8


def test_a_plan_that_is_none_is_one_line():
    for text, words in {
        "dp": "expected AXIS=N",
        "dp=0": "N of 1 or more",
        "dp=2,dp=2": "dp twice",
        "data=2": "expected the axes dp, tp, pp, ep, got 'data'",
        "cp=2": "expected the axes dp, tp, pp, ep, got 'cp'",
    }.items():
        with pytest.raises(ValueError, match=words):
            parse_sizes(text)
    assert parse_sizes("tp=2, ep=1") == {"dp": 1, "tp": 2, "pp": 1, "ep": 1}


def test_a_batch_that_does_not_divide_is_one_line():
    with pytest.raises(ValueError, match="multiple of dp=4, got 6; nearest 8"):
        grid_of(parse_sizes("dp=4"), 6)
    with pytest.raises(ValueError, match="divide a replica's 6 samples, got 4; nearest 3"):
        grid_of(parse_sizes("pp=2"), 6, 4)
    with pytest.raises(ValueError, match="at most 1024 ranks, got 2048"):
        grid_of(parse_sizes("dp=256,tp=8"), 256)
    with pytest.raises(ValueError, match="ep to divide dp=6, got ep=4; nearest 3"):
        grid_of(parse_sizes("dp=6,ep=4"), 6)
    with pytest.raises(ValueError, match="expected ep=1 where replicas share the weights"):
        grid_of(parse_sizes("dp=2,ep=2"), 6, replicas="fsdp")
    assert grid_of(parse_sizes("pp=2"), 6).microbatches == 6
    assert grid_of(parse_sizes("dp=2"), 6).microbatches == 1


PLANS = {
    "ddp=2": ("ddp=2", 2, "ddp"),
    "dp=2": ("ddp=2", 2, "ddp"),
    " fsdp = 4 ": ("fsdp=4", 4, "fsdp"),
    "fsdp=1": ("fsdp=1", 1, "fsdp"),
    "ddp=1": ("ddp=1", 1, "ddp"),
    "fsdp=2,tp=2": ("fsdp=2,tp=2", 4, "fsdp"),
    "tp=2": ("tp=2", 2, "ddp"),
    "ddp=1,tp=2": ("tp=2", 2, "ddp"),
    "pp=2": ("pp=2,m=4", 2, "ddp"),
    "m=3,pp=3": ("pp=3,m=3", 3, "ddp"),
    "pp=2,ddp=2": ("ddp=2,pp=2,m=4", 4, "ddp"),
    "fsdp=2,tp=2,pp=2,m=2": ("fsdp=2,tp=2,pp=2,m=2", 8, "fsdp"),
    "ep=2,ddp=4": ("ddp=4,ep=2", 4, "ddp"),
    "ddp=4,tp=2,ep=4": ("ddp=4,tp=2,ep=4", 8, "ddp"),
}


@pytest.mark.parametrize("text", PLANS)
def test_a_plan_has_one_name(text: str) -> None:
    name, world, replicas = PLANS[text]
    grid = parse_plan(text)
    assert (grid.name, grid.world, grid.replicas) == (name, world, replicas)
    assert parse_plan(grid.name) == grid


REFUSED = {
    "": "expected a plan like",
    "2": "expected a plan like",
    "ddp": "expected AXIS=N",
    "ddp=0": "expected AXIS=N",
    "ddp=2,fsdp=2": "expected one of ddp and fsdp",
    "ddp=2,dp=2": "expected each axis once",
    "ep=2": "expected ep to divide dp=1, got ep=2; nearest 1",
    "ddp=4,ep=3": "expected ep to divide dp=4, got ep=3; nearest 2",
    "pp=2,ddp=2,ep=2": "expected pp or ep, got both in 'pp=2,ddp=2,ep=2': torch.export does not capture",
    "ddp=2,cp=2": "expected the axes dp, tp, pp, ep, m, got 'cp'",
    "cp=2": "expected a plan like ddp=2, fsdp=2, ddp=2,tp=2 or pp=2, got 'cp=2'",
    "fsdp=2,ep=2": "expected fsdp or ep, got both",
    "pp=4,m=3": "expected m=N with pp, N of at least pp=4",
    "ddp=2,m=2": "expected m=N with pp",
    "zero=2": "expected a plan like",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_plan_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]) as fault:
        parse_plan(text)
    assert "\n" not in str(fault.value)


def test_the_tensor_axis_is_innermost_and_the_pipeline_outermost():
    grid = RankGrid(dp=2, tp=4, pp=3)
    assert grid.world == 24
    assert grid.coordinates(0) == Coordinates(0, 0, 0)
    assert grid.coordinates(3) == Coordinates(0, 0, 3)
    assert grid.coordinates(4) == Coordinates(0, 1, 0)
    assert grid.coordinates(8) == Coordinates(1, 0, 0)
    assert [(each.pp * 2 + each.dp) * 4 + each.tp for each in grid.places()] == list(range(24))
