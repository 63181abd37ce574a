"""Counts of steps at two batches of one model, and of models that do something in their first step alone."""

from __future__ import annotations

from runners.atlas.costs import TRACED, CostKey, _cost
from runners.footprint.step import StepOptions
from runners.reach import SMALL, operations_at, operations_at_each


def test_a_model_that_keeps_something_of_its_first_step_is_built_for_each_batch() -> None:
    """convit makes its relative positions once: of one model the second step would lack what makes them."""
    asked = StepOptions("timm:convit_tiny", TRACED, hyper={"image_size": 64})
    low, high = operations_at_each(asked, SMALL, "infer")
    assert len(low) > len(high)
    found = _cost(CostKey("timm:convit_tiny", 64, "infer"))
    assert found.reason == ""
    assert found.operations == tuple(operations_at(asked, batch, "infer") for batch in SMALL)


def test_one_model_gives_at_each_batch_what_a_model_of_its_own_does() -> None:
    for mode in ("train", "infer"):
        asked = StepOptions("timm:resnet10t", TRACED, hyper={"image_size": 64})
        assert list(operations_at_each(asked, SMALL, mode)) == [operations_at(asked, batch, mode) for batch in SMALL]
