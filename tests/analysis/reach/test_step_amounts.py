"""Amounts of a step by class: sizes derived by hand, at batches that were not traced."""

from __future__ import annotations

import pytest

from analysis.reach.step_amounts import COMPILED, EAGER, amounts, class_of, width_class
from results.errors import Inconsistent
from results.records.step_profile import StepOperation


def convolution(batch, index=0, channels=64, out=128, groups=1, kernel=3, backward=False):
    """8 × 8 images in, 8 × 8 images out, two bytes a number."""
    image, made = (batch, channels, 8, 8), (batch, out, 8, 8)
    weight = (out, channels // groups, kernel, kernel)
    return StepOperation(
        index=index,
        name="aten.convolution_backward" if backward else "aten.convolution",
        kind="convolution",
        phase="backward" if backward else "forward",
        input_shapes=(made, image, weight) if backward else (image, weight),
        output_shapes=(image, weight) if backward else (made,),
        model_flop=2 * batch * 64 * out * (channels // groups) * kernel**2 * (2 if backward else 1),
        read_bytes=2 * (batch * channels * 64 + out * channels // groups * kernel**2),
        written_bytes=2 * batch * out * 64,
        group=index,
        fused_bytes=2 * (batch * channels * 64 + out * channels // groups * kernel**2 + batch * out * 64),
    )


def relu(batch, index, group):
    shape = (batch, 128, 8, 8)
    nbytes = 2 * batch * 128 * 64
    return StepOperation(
        index=index, name="aten.relu_", kind="activation", phase="forward", input_shapes=(shape,),
        output_shapes=(shape,), read_bytes=nbytes, written_bytes=nbytes, group=group,
    )  # fmt: skip


def test_amounts_at_any_batch():
    found = amounts([convolution(2), relu(2, 1, 0)], 2, [convolution(4), relu(4, 1, 0)], 4)
    launches, flop, nbytes = found[EAGER]["convolution kxk ≤64"].at(10)
    assert launches == 1
    assert flop == 2 * 10 * 64 * 128 * 64 * 9
    weight = 2 * 128 * 64 * 9
    assert nbytes == 10 * 2 * 64 * (64 + 128) + weight
    assert found[EAGER]["rectifier"].at(10) == (1, 0, 2 * 2 * 10 * 128 * 64)


def test_what_is_fused_behind_a_product_is_one_pass_more():
    """The convolution reads and writes; the pass behind it reads what the convolution wrote and writes as much."""
    found = amounts([convolution(2), relu(2, 1, 0)], 2, [convolution(4), relu(4, 1, 0)], 4)[COMPILED]
    assert set(found) == {"convolution kxk ≤64", "fused pass"}
    one = 2 * 10 * 128 * 64
    assert found["fused pass"].at(10) == (1, 0, 2 * one)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (convolution(2, kernel=1), "convolution 1x1 ≤64"),
        (convolution(2, channels=32), "convolution kxk ≤32"),
        (convolution(2, groups=4), "grouped convolution ≤16"),
        (convolution(2, channels=128, groups=128), "depthwise convolution"),
        (convolution(2, backward=True), "convolution kxk backward ≤64"),
        (convolution(2, channels=128, groups=128, backward=True), "depthwise convolution backward"),
    ],
)
def test_the_class_of_a_convolution(operation, expected):
    assert class_of(operation, operation) == expected


def test_a_products_narrowest_side_is_none_that_grows_with_the_batch():
    def product(batch):
        return StepOperation(
            index=0, name="aten.addmm", kind="matmul", phase="forward", input_shapes=((batch, 512), (512, 1000)),
            output_shapes=((batch, 1000),), read_bytes=1, written_bytes=1,
        )  # fmt: skip

    assert class_of(product(2), product(4)) == "product >256"
    assert [width_class(width) for width in (1, 16, 17, 256, 257)] == ["≤16", "≤16", "≤32", "≤256", ">256"]


def test_another_sequence_of_operations_is_refused():
    with pytest.raises(Inconsistent, match="expected the same operations at batches 2 and 4"):
        amounts([convolution(2)], 2, [relu(4, 0, 0)], 4)
