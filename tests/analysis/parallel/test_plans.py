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
    "pp=2": "which is counted alone",
    "ep=2": "is not counted yet",
    "zero=2": "expected a plan like",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_plan_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]) as fault:
        parse_plan(text)
    assert "\n" not in str(fault.value)
