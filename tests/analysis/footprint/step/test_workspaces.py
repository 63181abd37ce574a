"""The allowance for libraries' workspaces, from the sizes that torch's documentation prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.footprint.caching_allocator import allowance, unforeseen
from tests.support.made_up_operations.made_up_operations import operation

PRODUCT = replace(operation("aten.mm", {"self": (2, 3), "mat2": (3, 4)}, [(2, 4)]), kind="matmul")
BACK = replace(PRODUCT, phase="backward")
AGAIN = replace(PRODUCT, phase="recompute")
PLAIN = operation("aten.relu", {"self": (1,)}, [(1,)])

HANDLE = 8_519_680
"""Bytes of `:4096:2:16:8`: what torch.cuda.memory_snapshot() shows after one product on devices before Hopper."""


@pytest.mark.parametrize(
    ("operations", "capability", "nbytes"),
    [
        ([PRODUCT], "8.0", HANDLE),
        ([PRODUCT, PRODUCT, BACK], "8.0", 2 * HANDLE),
        ([PRODUCT, BACK, AGAIN], "7.5", 2 * HANDLE),  # what is calculated again runs on autograd's thread
        ([PRODUCT, BACK], "9.0", 2 * 32 * 2**20),
        ([PRODUCT, BACK], "12.0", 2 * 32 * 2**20),
        ([PRODUCT], None, 32 * 2**20),  # an unknown device: the larger
    ],
)
def test_cublas(operations, capability: str | None, nbytes: int) -> None:
    assert [each.nbytes for each in allowance(operations, "cuda", capability)] == [nbytes]


def test_none_without_products_or_on_a_cpu() -> None:
    assert allowance([PLAIN], "cuda", "8.0") == ()
    assert allowance([PRODUCT], "cpu") == ()


def test_what_has_no_number_is_said() -> None:
    convolution = replace(PRODUCT, kind="convolution")
    for kind in ("convolution", "recurrent"):
        assert "cuDNN" in unforeseen([replace(PRODUCT, kind=kind)], "cuda")
    assert unforeseen([PRODUCT], "cuda") == ""
    assert "not known before" in unforeseen([convolution], "cpu")
    assert unforeseen([PLAIN], "cpu") == ""
