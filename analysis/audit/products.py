"""What a network multiplies in the training step of one sequence, product by product, in closed form.

A multiply-add is 2 FLOP. A product has two operands; the backward pass has one product of the same size for each of
them whose gradient is asked for: 2 as a rule, 1 where the input is a picture or the weight is frozen, 0 where both.
Weights that are in no product (normalisations, biases, tables that are looked up) are listed too, because formulas
that go by parameters count them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.audit.network import NetworkSizes
from analysis.audit.parts import DENSE, SCORES
from analysis.operators import causal_pairs

SCAN, CONVOLUTION, TIME_STEP, PATCHES, MERGER, CONDITION, ADAPTERS, SCALARS, TABLES = (
    "scan",
    "convolution",
    "time_step",
    "patches",
    "merger",
    "condition",
    "adapters",
    "scalars",
    "tables",
)
"""Parts beside those of decoders. scalars: weights of no product; tables: of lookups."""


@dataclass(frozen=True)
class ProductTerm:
    """multiply_adds: of the forward pass, all layers together. weights: how many it has, 0 for a product of two
    activations. gradients: of how many of its operands the gradient is asked for. spare: weights that a token does
    not use (of experts). tied: its weight is a table's, counted there. frozen: its weight is not trained."""

    part: str
    multiply_adds: int = 0
    weights: int = 0
    gradients: int = 2
    spare: int = 0
    tied: bool = False
    frozen: bool = False

    @property
    def forward_flop(self) -> int:
        return 2 * self.multiply_adds

    @property
    def backward_flop(self) -> int:
        return self.gradients * self.forward_flop

    @property
    def training_flop(self) -> int:
        return self.forward_flop + self.backward_flop


Products = Sequence[ProductTerm]
Form = Callable[[NetworkSizes, int, str], Products]
"""(network, tokens, convention of attention) → its products."""


def linear(part: str, weights: int, uses: int, layers: int = 1, gradients: int = 2) -> ProductTerm:
    """A matrix of so many weights, applied to `uses` positions, in so many layers."""
    return ProductTerm(part, layers * weights * uses, layers * weights, gradients)


def scalars(weights: int) -> ProductTerm:
    """Weights of no product."""
    return ProductTerm(SCALARS, weights=weights)


def table(weights: int) -> ProductTerm:
    """Weights that are looked up."""
    return ProductTerm(TABLES, weights=weights)


def with_table(product: ProductTerm) -> ProductTerm:
    """The same product with a table's weight."""
    return replace(product, tied=True)


def by_part(found: Products) -> Mapping[str, int]:
    """Part → FLOP of the forward pass."""
    parts: dict[str, int] = {}
    for product in found:
        if product.multiply_adds:
            parts[product.part] = parts.get(product.part, 0) + product.forward_flop
    return parts


def scores(queries: int, keys: int, width: int, layers: int, attention: str = DENSE, part: str = SCORES) -> ProductTerm:
    """Of an attention. width: multiply-adds of one pair of positions: the score, and the value that it weighs.
    attention: DENSE where no mask is causal."""
    pairs = queries * keys if attention == DENSE else causal_pairs(queries, keys)
    return ProductTerm(part, pairs * width * layers)
