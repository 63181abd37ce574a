"""Definition: operations per element, each calculated on a number that counts what is done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from analysis.operators.names import PER_INPUT, PER_OUTPUT

FLOP = {name: flop for _, flop, names in (*PER_OUTPUT, *PER_INPUT) for name in names.split()}


class Number:
    """A number whose arithmetic, comparisons and functions are counted; choosing by a comparison is free."""

    count = 0

    def counted(self, *_: Any) -> Number:
        Number.count += 1
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = counted
    __neg__ = __gt__ = __lt__ = counted


def apply(x: Number, *_: Any) -> Number:
    return x.counted()


exp = log = log1p = tanh = square = absolute = least = largest = rounded = sine = total = apply


def sigmoid(x: Any) -> Any:
    return 1 / (1 + exp(-x))


def bounded(x: Any) -> Any:
    return least(largest(x))


DEFINITIONS: dict[str, Callable[[Any], Any]] = {
    "relu": largest,
    "relu6": bounded,
    "leaky_relu": lambda x: (x > 0, x * x),
    "tanh_backward": lambda g: g * (1 - g * g),
    "sigmoid": sigmoid,
    "sigmoid_backward": lambda g: g * g * (1 - g),
    "hardsigmoid": lambda x: bounded(x + 3) / 6,
    "hardsigmoid_backward": lambda g: (g > -3, g < 3, g / 6),
    "elu": lambda x: (x > 0, x * (exp(x) - 1)),
    "celu": lambda x: (x > 0, x * (exp(x / x) - 1)),
    "selu": lambda x: (x > 0, x * (x * (exp(x) - 1))),
    "silu": lambda x: x * sigmoid(x),
    "silu_backward": lambda g: g * sigmoid(g) * (1 + g * (1 - g)),
    "hardswish": lambda x: x * bounded(x + 3) / 6,
    "glu": lambda x: x * sigmoid(x),
    "glu_backward": lambda g: (sigmoid(g), g * g, (1 - g) * g * g * g),
    "mish": lambda x: x * tanh(log1p(exp(x))),
    "mish_backward": lambda g: (sigmoid(g), tanh(log1p(exp(g))), g * (g + g * g * (1 - g * g))),
    "softplus": lambda x: (x * x > 20, log1p(exp(x)) / x),
    "softplus_backward": lambda g: (exp(g * g), g > 20, g * g / (g + 1)),
    "log_sigmoid_forward": lambda x: least(x) - log1p(exp(-absolute(x))),
    "lerp": lambda x: x + x * (x - x),
    "logit": lambda x: log(x / (1 - x)),
    "logaddexp": lambda x: largest(x) + log1p(exp(-absolute(x - x))),
    "logaddexp2": lambda x: largest(x) + log1p(exp(-absolute(x - x))) / 2,
    "sinc": lambda x: (x > 0, sine(x * 3) / x),
    "xlogy": lambda x: x * log(x),
    "special_entr": lambda x: -x * log(x),
    "quantize_per_tensor": lambda x: bounded(rounded(x / x) + x),
    "fake_quantize_per_tensor_affine_cachemask": lambda x: (bounded(rounded(x / x) + x) - x) * x,
    "mse_loss_backward": lambda g: 2 * (g - g) * g,
    "smooth_l1_loss_backward": lambda g: (g - g, g > 1, g < -1, g / g * g),
    "soft_margin_loss_backward": lambda g: -g * g * g / (1 + g),
    "binary_cross_entropy_backward": lambda g: g * (g - g) / largest(g * (1 - g)),
    "batch_norm_elemt": lambda x: (x - x) * x * x + x,
    "batch_norm_backward_elemt": lambda g: (g - g - (g - g) * g) * g,
    "var": lambda x: (total(x), total(square(x - x))),
    "mse_loss": lambda x: total(square(x - x)),
    "huber_loss": lambda x: (absolute(x - x) > 1, total(x * x * x)),
    "soft_margin_loss": lambda x: total(log1p(exp(-x * x)) / x),
    "smooth_l1_loss": lambda x: (absolute(x - x) > 1, total(x * x * x / x)),
    "binary_cross_entropy": lambda x: total(-(x * largest(log(x)) + (1 - x) * largest(log(1 - x)))),
}
"""Name → its definition with every number in place of x (of a gradient: g); what is chosen from lies side by side."""


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_operations_of_an_element_are_those_of_its_definition(name: str) -> None:
    Number.count = 0
    DEFINITIONS[name](Number())
    assert FLOP[name] == Number.count
