"""Which modules are asked for the dtype of their products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from measure.meter.product_dtypes import ProductDtypes, dtype_at


def test_layers_with_matrices_are_and_norms_and_embeddings_are_not() -> None:
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(3), nn.Linear(4, 2))
    dtypes: dict[str, torch.dtype] = {}
    seen = ProductDtypes(net, dtypes, pytest.fail)
    seen.attach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        net(torch.zeros(2, 3, dtype=torch.long))
    assert dtypes == {"1": torch.bfloat16, "4": torch.bfloat16}
    seen.detach()
    dtypes.clear()
    net(torch.zeros(2, 3, dtype=torch.long))
    assert dtypes == {}


def test_a_module_without_one_has_that_of_most_layers_in_it_or_around_it() -> None:
    half, full = torch.bfloat16, torch.float32
    dtypes = {"a.0": half, "a.1": half, "a.2": full, "b": full}
    assert dtype_at("a.2", dtypes) is full
    assert dtype_at("a", dtypes) is half
    assert dtype_at("a.norm", dtypes) is half
    assert dtype_at("", {}) is None
