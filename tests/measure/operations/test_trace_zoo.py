"""Law: every torchvision model traces twice alike, with no unsupported operation and storages that add up."""

from collections.abc import Callable

import pytest
import torch

from analysis.operators.registry import unsupported
from measure.operations.fake_mode import FakeMode
from measure.operations.tracer import StepParts, Trace, trace
from tests.measure.operations.vision_steps import parts
from workloads.catalogue.catalogue import ENTRIES

FAST = ("alexnet", "googlenet", "mobilenet_v2", "regnet_y_400mf", "resnet18", "swin_t", "vit_b_32", "r3d_18")


def names(task: str) -> list[str]:
    return [name for name, entry in ENTRIES.items() if entry.task == task]


def fast_or_slow(listed: list[str]) -> list[object]:
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in listed]


def check(recorded: Trace, parameters: list[torch.Tensor]) -> None:
    assert unsupported(recorded.operations) == {}
    storages = {s.id: s for s in recorded.storages}
    for operation in recorded.operations:
        for read in operation.reads:
            assert storages[read].born_index < operation.index
    weights = [s for s in recorded.storages if s.role == "weight"]
    assert all((s.born_index, s.died_index) == (-1, None) for s in weights)
    assert sum(s.nbytes for s in weights) == sum(p.numel() * p.element_size() for p in parameters)
    new = [s for s in recorded.storages if s.role == "gradient" and s.born_index >= 0]
    assert sum(s.nbytes for s in new) >= sum(s.nbytes for s in weights)  # more: one may be a view of a larger block
    phases = [o.phase for o in recorded.operations]
    assert sorted(set(phases)) == ["backward", "forward", "loss", "optimizer"]
    assert {o.module for o in recorded.operations if o.phase == "forward" and o.kind == "convolution"} == {
        o.module for o in recorded.operations if o.phase == "backward" and o.kind == "convolution"
    }


def traced(build: Callable[[FakeMode | None], StepParts]) -> tuple[Trace, list[torch.Tensor]]:
    made: list[StepParts] = []

    def keep(mode: FakeMode | None) -> StepParts:
        made.append(build(mode))
        return made[-1]

    return trace(keep), list(made[-1].model.parameters())


@pytest.mark.parametrize("name", fast_or_slow(names("classification") + names("video") + names("segmentation")))
def test_traces_on_fake_tensors(name: str) -> None:
    recorded, parameters = traced(parts(name, 2))
    assert recorded.notes == ()
    check(recorded, parameters)
    assert trace(parts(name, 2)) == recorded
