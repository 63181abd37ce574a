"""Padding of a window: written out, none, or such that the output has ceil(size / stride) positions."""

from __future__ import annotations

import pytest

from workloads.onnx.node import OnnxNode, padding


def padding_of(**attributes: object) -> tuple[list[int], list[int]]:
    """Of windows of 3 × 2 over an image of 5 × 6."""
    return padding(OnnxNode("MaxPool", "pool", ("x",), ("y",), 17, attributes), (5, 6), (3, 2))


PADS = [1, 0, 2, 1]  # ONNX's order: before each dimension, then after each


@pytest.mark.parametrize(
    ("attributes", "before", "after"),
    [
        ({}, [0, 0], [0, 0]),
        ({"pads": PADS}, [1, 0], [2, 1]),
        ({"pads": PADS, "auto_pad": "NOTSET"}, [1, 0], [2, 1]),
        ({"pads": PADS, "auto_pad": "VALID"}, [0, 0], [0, 0]),
        # 5 outputs of 3 taps cover 7 of 5 rows, 6 outputs of 2 taps 7 of 6 columns: 2 and 1 are added.
        ({"auto_pad": "SAME_UPPER"}, [1, 0], [1, 1]),
        ({"auto_pad": "SAME_LOWER"}, [1, 1], [1, 0]),
        # ceil(5 / 2) = 3 outputs cover (3 - 1) * 2 + 3 = 7 rows; ceil(6 / 4) = 2 cover 1 * 4 + 2 = 6 columns.
        ({"auto_pad": "SAME_UPPER", "strides": [2, 4]}, [1, 0], [1, 0]),
        # Dilated by 2 and 3: 5 outputs cover 4 + 2 * 2 + 1 = 9 rows, 6 cover 5 + 3 + 1 = 9 columns.
        ({"auto_pad": "SAME_LOWER", "dilations": [2, 3]}, [2, 2], [2, 1]),
    ],
)
def test_padding_by_each_rule(attributes, before, after):
    assert padding_of(**attributes) == (before, after)
