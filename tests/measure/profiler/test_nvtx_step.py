"""The step that a profiler around the process records: what runs before, what it is told, and what is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from measure.profiler import nvtx_step
from measure.profiler.nvtx_step import WARM_STEPS, record_step
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

    record_step(step, made.model, clock(seen), work="batch", cuda=True)
    inside = ["capture begins", "shapes True begins", "step", "synchronize", "shapes True ends", "capture ends"]
    assert seen == [*["step"] * WARM_STEPS, "synchronize", *inside]
    assert WARM_STEPS >= 2, "the first tries algorithms, and leaves memory that the next one finds"
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in made.model.modules())


def test_without_a_device_the_step_runs_all_the_same(seen: list[str]) -> None:
    made = parts(Small)(None)
    record_step(made.step, made.model, clock(seen), work="one", cuda=False)
    assert seen == ["synchronize"] * 2


def test_a_step_that_announces_nothing_is_refused(seen: list[str]) -> None:
    with pytest.raises(ValueError, match="it announced no phase"):
        record_step(lambda mark: None, torch.nn.Linear(2, 2), clock(seen), work="one", cuda=True)


def test_a_step_that_fails_leaves_no_capture_open(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter([None] * WARM_STEPS)
    monkeypatch.setattr(
        nvtx_step, "_captured", lambda cuda: contextlib.closing(SimpleNamespace(close=lambda: seen.append("closed")))
    )
    with pytest.raises(StopIteration):
        record_step(lambda mark: next(calls), torch.nn.Linear(2, 2), clock(seen), work="one", cuda=True)
    assert seen == ["synchronize", "closed"]
