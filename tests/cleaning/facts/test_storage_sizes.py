"""Storages whose size is not known (sparse gradients have none): what is known of the others is still asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from cleaning.facts.tables import table_faults, weight_bytes
from measure.operations.tracer import StepParts, Trace
from tests.support.nets.small_steps import Calls, run
from workloads.catalogue.base import Batch
from workloads.training.step import TrainingStep


@pytest.fixture(scope="module")
def sparse() -> Trace:
    """A step of an embedding with sparse gradients and a linear layer."""
    torch.manual_seed(0)
    model = Calls(
        lambda self, x: self.layer(self.table(x).mean(1)), table=nn.Embedding(11, 4, sparse=True), layer=nn.Linear(4, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, target = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    batch = Batch((inputs,), target)
    step = TrainingStep(model, nn.functional.cross_entropy, optimizer, [batch], "cpu", None, None)
    return run(StepParts(step, model, optimizer, (inputs, target)), None)


def test_a_table_with_sparse_gradients_has_no_fault(sparse: Trace) -> None:
    assert None in [storage.nbytes for storage in sparse.storages]
    assert table_faults(sparse.operations, sparse.storages) == []
    assert weight_bytes(sparse.storages) == 4 * (11 * 4 + 4 * 2 + 2)


def test_other_storages_are_still_asked(sparse: Trace) -> None:
    weight = next(each for each in sparse.storages if each.role == "weight" and each.nbytes == 4 * 4 * 2)
    less = [replace(each, nbytes=16) if each is weight else each for each in sparse.storages]
    assert [f for f in table_faults(sparse.operations, less) if f"of storage {weight.id}, which has 16" in f]


def test_a_weight_of_unknown_size_leaves_no_sum(sparse: Trace) -> None:
    weights = [replace(each, nbytes=None) if each.role == "weight" else each for each in sparse.storages]
    assert weight_bytes(weights) == 0
