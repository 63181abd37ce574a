"""ONNX graphs of a few bytes that ask for arrays of any size: each is refused before memory is taken."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from workloads.onnx.constants import KNOWN, calculate
from workloads.onnx.node import OnnxNode

LARGE = 100_000  # its square has 10^10 elements: 80 GB of int64


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


SIDE = np.zeros((1, LARGE), np.int64)

HUGE = {
    "ConstantOfShape": [array(LARGE, LARGE)],
    "Range": [array(0)[0], array(LARGE * LARGE)[0], array(1)[0]],
    "Expand": [SIDE, array(LARGE, LARGE)],
    "Tile": [SIDE, array(LARGE, 1)],
    "Add": [SIDE, SIDE.T],
    "Where": [SIDE == 0, SIDE.T, SIDE],
    "Max": [SIDE, SIDE.T],
    "Gather": [SIDE, np.zeros(LARGE, np.int64)],
    "Concat": [SIDE] * 1000,
}


@pytest.mark.parametrize("op", HUGE)
def test_what_would_not_fit_is_refused_before_it_is_made(op):
    node = OnnxNode(op, "huge", ("a", "b", "c"), ("y",), 17, {"axis": 0})
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"array_elements=N raises the limit") as fault:
            calculate(node, HUGE[op])
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert f"ONNX operator {op} (node 'huge')" in str(fault.value)


def test_the_limit_can_be_raised_and_lowered(monkeypatch):
    node = OnnxNode("ConstantOfShape", "c", ("s",), ("y",), 17)
    assert calculate(node, [array(3, 5)])[0].shape == (3, 5)
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "array_elements=14")
    with pytest.raises(ValueError, match="more than 14"):
        calculate(node, [array(3, 5)])


def test_a_range_without_a_step_is_refused():
    for numbers in ((0, 5, 0), (0.0, float("inf"), 1.0), (float("nan"), 1.0, 1.0)):
        with pytest.raises(ValueError, match="expected a step that is not 0"):
            KNOWN["Range"](OnnxNode("Range", "r", (), ("y",), 17), [np.array(each) for each in numbers])
    assert KNOWN["Range"](
        OnnxNode("Range", "r", (), ("y",), 17), [array(5)[0], array(0)[0], array(-2)[0]]
    ).tolist() == [
        5,
        3,
        1,
    ]


def test_many_arrays_together_are_bounded(monkeypatch):
    from workloads.onnx.module import OnnxNet

    nodes = [OnnxNode("ConstantOfShape", f"c{i}", ("s",), (f"y{i}",), 17) for i in range(5)]  # 4 KB each
    assert OnnxNet(nodes, {"s": array(1000)}, [], ["y0"]) is not None
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "array_values=19999")
    with pytest.raises(ValueError, match="array_values=N"):
        OnnxNet(nodes, {"s": array(1000)}, [], ["y0"])
