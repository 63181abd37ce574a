"""A matrix product that does not fit the cache: in square tiles, whose inputs are streamed for each tile of the output.

A product of (m × k) and (k × n) in tiles of side t reads each row panel once per tile column and each column panel once
per tile row, and reads and writes its output: element bytes · (m·k·⌈n/t⌉ + k·n·⌈m/t⌉ + 2·m·n). The idea of tiling is
Coleman and McKinley's (SIGPLAN Notices 30, 1995); section 6.1 of the paper
(`analysis/project/frontier/learning_curves.py`) uses such a model and prints neither formula nor tile. `TILE` is the
side with which this one gives the paper's result, a calibration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.project.frontier.accelerator import Accelerator

TILE = 64


@dataclass(frozen=True)
class Product:
    """(m × k) by (k × n), done `times` times."""

    m: int
    k: int
    n: int
    times: int = 1

    @property
    def flop(self) -> int:
        """Of all of them; a multiply-add is 2."""
        return 2 * self.m * self.k * self.n * self.times

    def moved_bytes(self, tile: int | None = None, element_bytes: int = 4) -> int:
        """Of all of them. tile: its side; None: every matrix moves once, as if the cache had no end."""
        m, k, n = self.m, self.k, self.n
        if tile is None:
            return element_bytes * (m * k + k * n + m * n) * self.times
        each = m * k * -(-n // tile) + k * n * -(-m // tile) + 2 * m * n
        return element_bytes * each * self.times

    def gradients(self) -> tuple[Product, Product]:
        """The two products of its backward pass: (m × n) by (n × k) for the first matrix, (k × m) by (m × n) for the
        second."""
        return Product(self.m, self.n, self.k, self.times), Product(self.k, self.m, self.n, self.times)


def largest_tile(cache_bytes: float, element_bytes: int = 4) -> int:
    """The side of the largest tile of which three fit the cache: one of each matrix."""
    return max(1, int((cache_bytes / element_bytes / 3) ** 0.5))


def time_s(products: Iterable[Product], target: Accelerator, tile: int | None = None) -> float:
    """One after the other, each at its own roofline."""
    return sum(
        target.step(product.flop, product.moved_bytes(tile, target.element_bytes)).time_s for product in products
    )
