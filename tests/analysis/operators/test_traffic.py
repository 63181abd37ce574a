"""Bytes: each input once, each output once; what is only overwritten is not read, a view moves nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from analysis.operators import registry, traffic
from tests.support.made_up_operations.made_up_operations import operation


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "read", "written"),
    [
        ("aten.add", {"self": (2, 3), "other": (3,)}, [(2, 3)], 36, 24),
        ("aten.permute", {"self": (2, 3)}, [(3, 2)], 0, 0),
        ("aten.empty", {}, [(2, 3)], 0, 0),
        ("aten.zeros", {}, [(2, 3)], 0, 24),
        ("aten.clone", {"self": (2, 3)}, [(2, 3)], 24, 24),
        ("aten.add_", {"self": (2, 3), "other": (3,)}, [(2, 3)], 36, 24),  # what it returns is what it wrote
        ("aten.copy_", {"self": (2, 3), "src": (3,)}, [(2, 3)], 12, 24),  # overwritten, not read
        ("aten.zero_", {"self": (2, 3)}, [(2, 3)], 0, 24),
        ("aten._foreach_mul_", {"self[0]": (2, 3)}, [], 24, 24),  # returns nothing
        ("aten.embedding", {"weight": (1000, 8), "indices": (3,)}, [(3, 8)], 96 + 12, 96),  # 3 rows of the table
    ],
)
def test_bytes(name: str, inputs: Any, outputs: Any, read: int, written: int) -> None:
    """float32, 4 bytes an element."""
    cost = registry.cost(operation(name, inputs, outputs))
    assert (cost.read_bytes, cost.written_bytes) == (read, written)


def test_a_tensor_passed_twice_is_read_once() -> None:
    square = operation("aten.mul", {"self": (8,), "other": (8,)}, [(8,)])
    assert registry.cost(replace(square, reads=(0, 0), writes=(1,))).read_bytes == 32
    assert registry.cost(replace(square, reads=(0, 1), writes=(2,))).read_bytes == 64


def test_statistics_written_in_place_are_written() -> None:
    """Batch norm returns an output and 2 saved statistics, and updates 2 more of the same shape: 4 · (8 + 4 · 2)."""
    inputs = {"input": (4, 2), "running_mean": (2,), "running_var": (2,)}
    norm = operation("aten.native_batch_norm", inputs, [(4, 2), (2,), (2,)], training=True)
    cost = registry.cost(replace(norm, reads=(0, 1, 2), writes=(3, 4, 5, 1, 2)))
    assert (cost.read_bytes, cost.written_bytes) == (4 * 12, 4 * 16)


def test_an_out_argument_is_written_only() -> None:
    product = operation("aten.mm", {"self": (2, 3), "mat2": (3, 5), "out": (2, 5)}, [(2, 5)], overload="out")
    cost = registry.cost(replace(product, reads=(0, 1, 2), writes=(2,)))
    assert (cost.read_bytes, cost.written_bytes) == (4 * 21, 4 * 10)


def test_bytes_by_dtype() -> None:
    """A cast from float32 to bfloat16 reads 4 and writes 2 bytes an element; an unknown dtype is refused."""
    cast = operation("aten._to_copy", {"self": (8,)}, [(8,)], dtype="bfloat16", dtypes={"self": "float32"})
    assert (registry.cost(cast).read_bytes, registry.cost(cast).written_bytes) == (32, 16)
    with pytest.raises(ValueError, match="got 'float3'"):
        traffic.itemsize("float3")


@pytest.mark.parametrize("name", sorted(traffic.DTYPE_BYTES))
def test_element_sizes_are_torchs(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        assert name.startswith("float")  # newer than this PyTorch
        return
    assert traffic.itemsize(name) == dtype.itemsize


def test_gathering_and_overwriting_operations_are_in_the_table() -> None:
    for name in (*traffic.GATHERS, *traffic.OVERWRITES):
        assert registry.kind_of(name)
