"""What others measured of a GPU's memory in a training step, against what is predicted of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.footprint.caching_allocator import replay
from analysis.footprint.live_bytes import BEFORE, footprint
from runners.footprint.step import StepOptions, trace_batch

MEASURED = {
    ("mobilenet_v2", 32): 2_581_472_256,
    ("mobilenet_v2", 128): 10_135_741_440,
    ("vgg19", 128): 11_743_401_984,
    ("googlenet", 128): 6_357_943_808,
}
"""Model, batch → `max_memory_allocated` of one step in fp32 with SGD (torch 1.13.1; pull request 23 of
github.com/facebookresearch/MODel_opt). Their gradients of an earlier trace lie there, too: a copy of the parameters."""


@pytest.mark.parametrize(("model", "batch"), MEASURED)
def test_bytes_that_others_saw_allocated(model: str, batch: int) -> None:
    step = trace_batch(StepOptions(model, "fp32", "sgd-plain", "cuda"), batch)
    ledger = footprint(step.operations, step.storages).ledger
    fresh = max(each.id for each in ledger) + 1
    weights = [each for each in ledger if each.role == "weight"]
    copies = [replace(each, id=fresh + place, born_index=BEFORE) for place, each in enumerate(weights)]
    predicted = replay([*ledger, *copies], len(step.operations)).allocated_bytes
    assert predicted == pytest.approx(MEASURED[model, batch], rel=0.002)
