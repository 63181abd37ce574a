"""What an operation costs: arithmetic and bytes, as a value that adds up.

Sizes are ints, or sympy expressions where a model is derived as a formula. A Cost knows neither time nor device, and
its bytes are those of unfused operations: every input read once, every output written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Size = Any
"""An int, or a sympy expression. Formulas only add, multiply and divide exactly, so that either will do."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic and traffic of one operation, or the sum over many.

    model_flop: FLOP of convolutions and matrix products, one multiply-add being 2 (MLPerf's "model FLOP").
    other_flop: FLOP of everything else, by the convention of `analysis/operators/products.py`.
    read_bytes, written_bytes: bytes of inputs and of outputs if nothing is fused and nothing stays in a cache.
    """

    model_flop: Size = 0
    other_flop: Size = 0
    read_bytes: Size = 0
    written_bytes: Size = 0

    def __add__(self, other: Cost) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(
            self.model_flop + other.model_flop,
            self.other_flop + other.other_flop,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
        )

    def __radd__(self, other: object) -> Cost:
        """0 + cost, so that `sum(costs)` works without a start value."""
        return self if other == 0 else NotImplemented

    def __mul__(self, times: Size) -> Cost:
        """The same operation `times` times."""
        return Cost(
            self.model_flop * times, self.other_flop * times, self.read_bytes * times, self.written_bytes * times
        )

    __rmul__ = __mul__

    @property
    def all_flop(self) -> Size:
        """Model and other FLOP together."""
        return self.model_flop + self.other_flop

    @property
    def moved_bytes(self) -> Size:
        """Bytes read and written together."""
        return self.read_bytes + self.written_bytes


ZERO = Cost()
