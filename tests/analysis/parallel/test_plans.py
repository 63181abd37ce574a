"""Plans of a step that is trained: their words, one name for each, and what is refused."""

from __future__ import annotations

import pytest

from analysis.parallel import parse_plan

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
    "ep=2": "got ep, which is counted alone",
    "ddp=2,pp=2": "expected pp alone",
    "pp=4,m=3": "expected m=N with pp, N of at least pp=4",
    "ddp=2,m=2": "expected m=N with pp",
    "tp=2,cp=2": "expected tp or cp",
    "zero=2": "expected a plan like",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_plan_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]) as fault:
        parse_plan(text)
    assert "\n" not in str(fault.value)
