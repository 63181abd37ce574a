"""Faults of calflops, which patches functions of torch and gives FLOP and multiply-adds."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import profilers
from measure.counters.faults.reproductions.nets import Does, under_two_parents, weight


def _count(model: nn.Module, *shape: int, **options: Any) -> list[int]:
    """[FLOP, multiply-adds]."""
    from calflops import calculate_flops

    found = calculate_flops(model, args=[torch.ones(shape)], print_results=False, output_as_string=False, **options)
    return [int(found[0]), int(found[1])]


def _flop(model: nn.Module, *shape: int) -> int:
    return _count(model, *shape)[0]


def products_by_six_names() -> dict[str, int]:
    """torch.matmul counts; the operator @, mm, bmm and their methods do not.

    2 · 16 · 16 multiply-adds each."""
    functions = {
        "torch.matmul": lambda m, x: torch.matmul(x, m.w),
        "@": lambda m, x: x @ m.w,
        "torch.mm": lambda m, x: torch.mm(x, m.w),
        "Tensor.mm": lambda m, x: x.mm(m.w),
        "torch.bmm": lambda m, x: torch.bmm(x[None], m.w[None]),
        "Tensor.bmm": lambda m, x: x[None].bmm(m.w[None]),
    }
    return {name: _count(Does(function, w=weight(16, 16)), 2, 16)[1] for name, function in functions.items()}


def attention() -> list[int]:
    """scaled_dot_product_attention counts nothing.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return _count(Does(lambda m, x: F.scaled_dot_product_attention(x, x, x), w=weight(1)), 1, 4, 16, 32)


def grouped_transposed_convolution() -> list[int]:
    """A grouped transposed convolution counts nothing.

    4 channels · 25 inputs, each with 2 · 4 weights."""
    return _count(nn.ConvTranspose2d(4, 8, 2, groups=4, bias=False), 1, 4, 5, 5)


def broadcast_product() -> int:
    """torch.mul of a tensor and a vector is broadcast from the left, and counts other elements.

    2 · 3 · 4 multiplications."""
    return _flop(Does(lambda m, x: torch.mul(x, m.w), w=weight(4)), 2, 3, 4)


def shared_module() -> list[int]:
    """A module that two others share counts its work twice.

    Two calls of 16 · 16 multiply-adds."""
    return _count(under_two_parents(), 1, 16)


def backward_of_a_frozen_layer() -> list[int]:
    """include_backPropagation multiplies everything by 3, frozen layers too.

    A layer that is frozen and whose input needs no gradient has no backward pass: 10 · 10 multiply-adds."""
    model = nn.Linear(10, 10, bias=False).requires_grad_(False)
    return _count(model, 1, 10, include_backPropagation=True)


def backward_of_the_first_layer() -> list[int]:
    """include_backPropagation multiplies everything by 3, the first layer too.

    Its input needs no gradient, so that its backward pass is one product: 2 · 10 · 10 multiply-adds in all."""
    return _count(nn.Linear(10, 10, bias=False), 1, 10, include_backPropagation=True)


def model_without_parameters() -> Any:
    """A model without parameters raises.

    10 elements of ReLU."""
    return _flop(nn.Sequential(nn.ReLU()), 1, 10)


def mapping_as_an_input() -> Any:
    """A dictionary as an input raises, by position and by keyword.

    2 · 10 · 10 FLOP."""
    from calflops import calculate_flops

    model = Does(lambda m, x: m.layer(x["x"]), layer=nn.Linear(10, 10, bias=False))
    inputs = {"x": torch.ones(1, 10)}
    return calculate_flops(model, args=[inputs], print_results=False, output_as_string=False)[0]


FAULTS = (
    *profilers.faults(_count),
    Fault(
        products_by_six_names,
        "inconsistency",
        "not seen",
        {"torch.matmul": 512, "@": 0, "torch.mm": 0, "Tensor.mm": 0, "torch.bmm": 0, "Tensor.bmm": 0},
        {"torch.matmul": 512, "@": 512, "torch.mm": 512, "Tensor.mm": 512, "torch.bmm": 512, "Tensor.bmm": 512},
        ("26", "36", "48"),
    ),
    Fault(attention, "missing operation", "not seen", [0, 0], [2 * 65_536, 65_536], ("26", "36", "48")),
    Fault(grouped_transposed_convolution, "wrong count", "formula", [0, 0], [1_600, 800]),
    Fault(broadcast_product, "wrong count", "formula", 48, 24),
    Fault(put_to(profilers.interpolation_to_a_size, _count), "wrong count", "formula", [384, 256], [1_536, 1_536]),
    Fault(put_to(profilers.upsample_twice, _count), "wrong count", "counted twice", 2 * 32, 128),
    Fault(shared_module, "wrong count", "counted twice", [2_048, 1_024], [1_024, 512]),
    Fault(backward_of_a_frozen_layer, "wrong count", "backward by decree", [600, 300], [200, 100]),
    Fault(backward_of_the_first_layer, "wrong count", "backward by decree", [600, 300], [400, 200]),
    Fault(
        put_to(profilers.stride_as_a_list, _count), "crash", "calling form", "raises TypeError", [2 * 972, 972], ("11",)
    ),
    Fault(model_without_parameters, "crash", "calling form", "raises StopIteration", 10),
    Fault(mapping_as_an_input, "crash", "calling form", "raises AttributeError", 200),
)
