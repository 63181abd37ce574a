"""Definition: what runs in and before the step that a profiler records, and its allocations by hand.

Allocations are made up; `tests/analysis/footprint/test_footprint_random.py` has real ones.
"""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from measure.profile.allocations import Allocation, AllocationPeak, attributed
from measure.profile.recording import WARM_STEPS, record_step
from tests.support.nets.small_steps import Small, parts


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order; the profiler and torch's ranges only say that they begin and end."""
    order: list[str] = []

    @contextlib.contextmanager
    def told(name: str) -> Iterator[None]:
        order.append(f"{name} begins")
        yield
        order.append(f"{name} ends")

    monkeypatch.setattr(torch.cuda.profiler, "profile", lambda: told("capture"))
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", lambda record_shapes: told(f"shapes {record_shapes}"))
    return order


def clock(order: list[str]) -> SimpleNamespace:
    return SimpleNamespace(synchronize=lambda: order.append("synchronize"))


def test_it_warms_up_outside_of_the_capture_and_runs_once_inside(seen: list[str]) -> None:
    made = parts(Small)(None)

    def step(mark) -> None:
        seen.append("step")
        made.step(mark)

    record_step(step, made.model, clock(seen), pass_name="batch", cuda=True)
    inside = ["capture begins", "shapes True begins", "step", "synchronize", "shapes True ends", "capture ends"]
    assert seen == [*["step"] * WARM_STEPS, "synchronize", *inside]
    assert WARM_STEPS >= 2, "the first tries algorithms, and leaves memory that the next one finds"
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in made.model.modules())


SPANS = [(10, 20), (30, 40), (50, 60)]
"""Of a product, a convolution and a ReLU."""


def test_by_hand() -> None:
    """Weights 100 always. mm makes 40 and takes 500 for itself, convolution makes 80 and takes 7: the peak is in mm, of
    tensors in convolution: 100 + 40 + 80."""
    blocks = [
        Allocation(1, None, 100),
        Allocation(11, 45, 40),
        Allocation(12, 19, 500),
        Allocation(31, 55, 80),
        Allocation(32, 38, 7),
        Allocation(70, None, 10_000),  # after the step
    ]
    assert attributed(blocks, SPANS, (5, 65)) == AllocationPeak(640, 220)
    assert attributed(blocks, SPANS, (25, 65)) == AllocationPeak(227, 220)


@pytest.mark.parametrize(
    ("blocks", "tensors_bytes"),
    [
        ([Allocation(12, 21, 5)], 5),  # it outlives its operation
        ([Allocation(12, 20, 5)], 0),
        ([Allocation(12, None, 5)], 5),
        ([Allocation(22, 24, 5)], 5),  # made between operations
        ([Allocation(2, 3, 5)], 5),
        ([Allocation(30, 60, 5), Allocation(12, 30, 5)], 5),  # one goes as the other comes: never both
    ],
)
def test_what_is_a_tensor(blocks: list[Allocation], tensors_bytes: int) -> None:
    assert attributed(blocks, SPANS, (0, 65)) == AllocationPeak(5, tensors_bytes)
