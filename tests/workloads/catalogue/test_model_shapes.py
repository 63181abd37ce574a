"""The grammar of --input, and the tensors that come of it."""

from __future__ import annotations

import pytest
import torch

from workloads.catalogue.model_names import Shape, parse_shapes
from workloads.training.building import draw

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("3x224x224", [Shape((3, 224, 224))]),
        ("128:int64:30522", [Shape((128,), "int64", 30522)]),
        (":int64:10", [Shape((), "int64", 10)]),
        ("3x8x8, 16:int32:9", [Shape((3, 8, 8)), Shape((16,), "int32", 9)]),
        ("4:bool", [Shape((4,), "bool")]),
        ("7,mask=5x5:bool", [Shape((7,)), Shape((5, 5), "bool", 0, "mask")]),
        ("scale=:float64", [Shape((), "float64", 0, "scale")]),
    ],
)
def test_shapes(text, shapes):
    assert parse_shapes(text) == tuple(shapes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected [NAME=]SIZExSIZE"),
        ("3x224x224,", "got ''"),
        ("3*224", "expected sizes of 1 or more with x between them, got '3*224'"),
        ("3x-1", "got '-1'"),
        ("0x3", "got '0'"),
        ("3x²", "got '²'"),
        ("3:float8", "expected a dtype of float32, float64"),
        ("128:int64", "int64 needs a bound of 2 or more, such as 128:int64:30522"),
        ("128:int64:1", "needs a bound of 2 or more"),
        ("128:int64:x", "needs a bound of 2 or more"),
        ("128:float32:9", "only int64 and int32 have a bound, float32 has none"),
        ("128:int64:9:9", "expected [NAME=]"),
        ("a-b=3", "expected [NAME=]"),
        ("a=3,4", "an input without a name comes after one with a name"),
        ("a=3,a=4", "expected each name once"),
    ],
)
def test_mistakes_are_one_line(text, said):
    with pytest.raises(ValueError, match="--input") as fault:
        parse_shapes(text)
    assert said in str(fault.value)
    assert repr(text) in str(fault.value)
    assert "\n" not in str(fault.value)


def test_tensors_have_the_batch_in_front_and_are_random_and_repeat():
    def made(shape, seed=0):
        return draw(shape, 5, CPU, torch.Generator().manual_seed(seed))

    images = made(Shape((3, 4)))
    assert (images.shape, images.dtype) == ((5, 3, 4), torch.float32)
    assert torch.equal(images, made(Shape((3, 4))))
    assert not torch.equal(images, made(Shape((3, 4)), seed=1))
    assert images.count_nonzero() == images.numel()
    tokens = made(Shape((200,), "int32", 7))
    assert (tokens.dtype, tokens.unique().tolist()) == (torch.int32, [0, 1, 2, 3, 4, 5, 6])
    bits = made(Shape((200,), "bool"))
    assert (bits.dtype, bits.unique().tolist()) == (torch.bool, [False, True])
    assert made(Shape((), "int64", 3)).shape == (5,)
    assert made(Shape((2,), "bfloat16")).dtype == torch.bfloat16
