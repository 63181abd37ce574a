"""What is kept of a block that ran, and of one that was left out because it is like it; see `block_replay.py`."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from measure.fast_count.autograd_reach import Edge
from measure.fast_count.product_cost import Form, Mask


@dataclass(eq=False)
class Template:
    """What one block ran. products: (form, module path below the block's own). outputs: sizes, strides, dtype and
    whether it needs a gradient, of each tensor. reached: for each output, (products with the gradients asked for,
    positions of inputs). backward_flops: outputs that a gradient arrives at → model FLOP of the backward pass.
    originals: outputs that need a gradient, by their places, of which each replay has a copy."""

    products: tuple[tuple[Form, str], ...]
    not_understood: Counter[tuple[str, str]]
    outputs: tuple[tuple[Any, ...], ...]
    rest: tuple[Any, Any]
    reached: tuple[tuple[frozenset[tuple[int, Mask]], frozenset[int]], ...]
    backward_flops: dict[frozenset[int], int] = field(default_factory=dict)
    originals: dict[int, torch.Tensor] = field(default_factory=dict)

    @functools.cached_property
    def forward_flop(self) -> int:
        """Model FLOP of its forward pass."""
        return sum(form.forward[1] for form, _ in self.products)


@dataclass(eq=False)
class Replay:
    """A block that was not run. wanted: outputs that a gradient arrives at. inputs: edges of its input tensors."""

    template: Template
    path: str
    number: int
    inputs: list[Edge | None]
    wanted: set[int] = field(default_factory=set)

    def onwards(self, output: int) -> list[Edge]:
        """The edges of the inputs that a gradient of this output reaches."""
        return [edge for i in self.template.reached[output][1] if (edge := self.inputs[i]) is not None]

    def products(self) -> frozenset[tuple[int, Mask]]:
        """Places among the template's products, and which gradients of them are computed."""
        return frozenset().union(*(self.template.reached[output][0] for output in self.wanted))

    def backward_flop(self) -> int:
        """Model FLOP of its backward pass; the same for all replays of which a gradient arrives at the same outputs."""
        known, wanted, products = self.template.backward_flops, frozenset(self.wanted), self.template.products
        if wanted not in known:
            known[wanted] = sum(products[place][0].backward_flop(mask) for place, mask in self.products())
        return known[wanted]


@dataclass(eq=False)
class Draft:
    """What is kept of a block that ran, until one like it is called and a Template is made: most never are.

    inputs, outputs: edges; forms: as a template's outputs; start: number of the first autograd node; products: places
    on the tape, from and to; nested: replays inside.
    """

    path: str
    inputs: list[Edge | None]
    outputs: list[Edge | None]
    forms: tuple[tuple[Any, ...], ...]
    rest: tuple[Any, Any]
    start: int
    products: tuple[int, int]
    nested: list[Replay]
    not_understood: Counter[tuple[str, str]]
