"""Injected fault: device memory is refused at an allocation or from there on; torch asks again, or a row says so."""

import pytest

from tests.standin.device.stand_in import Task
from tests.standin.faults.failing_cells import KERNEL_NS

pytestmark = pytest.mark.standin

CELL = {"model": "resnet18", "batch_size": 8, "image_size": 64}
ALLOCATIONS = 34
"""A first run of the cell asks so often for device memory: see the state of a device that refuses none."""

PARTS = 4
"""Of all allocations, a test each: a busy machine needs minutes for one, as each cell is measured."""

ALWAYS, ONCE, TWICE = 0, 1, 2
"""`fail_allocations`: how many in a row are refused."""


def refused(device, cases):
    """{(number of the allocation, how many are refused from there on): (status, reason)} of a cell."""
    plans = {f"{number} {many}": {"fail_allocation": number, "fail_allocations": many} for number, many in cases}
    answers = device.tasks({name: Task("cell", (CELL,), plan) for name, plan in plans.items()})
    return {(number, many): tuple(answers[f"{number} {many}"]) for number, many in cases}


def test_memory_that_runs_out_is_a_row_that_says_so(standin):
    """In the model, in a convolution whose workspaces do not fit any more, and in the optimizer.

    torch frees what it keeps and asks once more: a refusal alone costs nothing, two in a row are out of memory.
    """
    cases = {(1, ALWAYS), (9, ALWAYS), (20, ALWAYS), (1, TWICE), (20, TWICE)}
    outcomes = refused(standin(kernel_ns=KERNEL_NS), [*cases, (20, ONCE)])
    assert {case for case, (status, _) in outcomes.items() if status == "out_of_memory"} == cases
    assert outcomes[20, ONCE][0] == "ok"
    assert "no workspace fitted" in outcomes[9, ALWAYS][1]


@pytest.mark.slow
@pytest.mark.parametrize("many", [ALWAYS, ONCE])
@pytest.mark.parametrize("part", range(PARTS))
def test_each_allocation_of_a_step_may_be_the_one_that_fails(standin, part, many):
    numbers = range(1 + part, ALLOCATIONS + 1, PARTS)
    outcomes = refused(standin(kernel_ns=KERNEL_NS), [(number, many) for number in numbers])
    assert {status for status, _ in outcomes.values()} == {"ok" if many else "out_of_memory"}
    assert all(reason for status, reason in outcomes.values() if status != "ok")
