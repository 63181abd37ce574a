"""Plans of a step that is trained: their words, one name for each, and what is refused."""

from __future__ import annotations

import pytest

from analysis.parallel.rank_grid import parse_plan

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
    "fsdp=2,cp=2": ("fsdp=2,cp=2", 4, "fsdp"),
    "cp=4": ("cp=4", 4, "ddp"),
    "pp=2,ddp=2": ("ddp=2,pp=2,m=4", 4, "ddp"),
    "fsdp=2,tp=2,pp=2,m=2": ("fsdp=2,tp=2,pp=2,m=2", 8, "fsdp"),
    "tp=2,cp=2": ("tp=2,cp=2", 4, "ddp"),
    "ep=2,ddp=4": ("ddp=4,ep=2", 4, "ddp"),
    "ddp=2,tp=2,cp=2,ep=4": ("ddp=2,tp=2,cp=2,ep=4", 8, "ddp"),
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
    "ep=2": "expected ep to divide dp · cp = 1, got ep=2; nearest 1",
    "ddp=4,ep=3": "expected ep to divide dp · cp = 4, got ep=3; nearest 2",
    "pp=2,cp=2": "expected pp or cp, got both in 'pp=2,cp=2': a stage of torch.export calls the operator of attention",
    "pp=2,ddp=2,ep=2": "expected pp or ep, got both",
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
