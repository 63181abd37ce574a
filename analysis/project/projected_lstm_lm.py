"""A language model of LSTM layers whose last state is projected before the output layer (section 6.1 of the paper).

Of h hidden units, a projection to p and v words, in two layers over sequences of q, it has 16h² + 8h + hv + hp + pv + v
parameters. Its cost is that of `wordlm` with another output layer: in that model's formulas (FLOP and bytes) the terms
in h·v are the output layer's alone (the embedding's gradient is sparse), and h·v becomes h·p + p·v there. What is no
matrix product is the rest of the formula: it moves bytes at memory's rate.

As in the TensorFlow graph that the paper counted, each step adds the gradient of its layer's weights to a sum: three
matrices of 8h² move for each step and layer. PyTorch has one product for all steps instead.

A matrix product that does not fit the cache runs in square tiles, whose inputs are streamed for each tile of the
output.
A product of (m × k) and (k × n) in tiles of side t reads each row panel once per tile column and each column panel once
per tile row, and reads and writes its output: element bytes · (m·k·⌈n/t⌉ + k·n·⌈m/t⌉ + 2·m·n). The idea of tiling is
Coleman and McKinley's (SIGPLAN Notices 30, 1995); section 6.1 of the paper
(`analysis/project/learning_curves.py`) uses such a model and prints neither formula nor tile. The
assumption `tile` is the side with which this one gives the paper's result, a calibration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analysis.project.accelerator import Accelerator
from analysis.project.shipped_formulas import Formulas

LAYERS = 2
"""Layers of the graph that the formulas are of."""

ELEMENT_BYTES = 4


@dataclass(frozen=True)
class ProjectedLM:
    """Its sizes, and wordlm's formulas. projection None: none, wordlm itself."""

    formulas: Formulas
    hidden: int
    vocab: int
    seq: int
    batch: int
    projection: int | None = None

    def flop(self) -> float:
        """FLOP of a training step, everything counted."""
        return self._swapped("all_flop")

    def moved_bytes(self) -> float:
        """Bytes of a training step, every operation by itself, each matrix moved once."""
        return self._swapped("bytes_accessed")

    def parameters(self) -> Mapping[str, int]:
        """By layer: embedding, one recurrent layer, output (with the projection)."""
        h, v, p = self.hidden, self.vocab, self.projection
        output = h * v + v if p is None else h * p + p * v + v
        return {"embedding": h * v, "recurrent": 8 * h * h + 4 * h, "output": output}

    def recurrent_products(self) -> list[Product]:
        """Products of one layer and one step: forward, then the gradients of its input and of its weights."""
        forward = Product(self.batch, 2 * self.hidden, 4 * self.hidden)
        return [forward, *forward.gradients()]

    def output_products(self) -> list[Product]:
        """Products of the output layer for all steps at once, forward and backward."""
        rows = self.batch * self.seq
        if self.projection is None:
            forward = [Product(rows, self.hidden, self.vocab)]
        else:
            forward = [Product(rows, self.hidden, self.projection), Product(rows, self.projection, self.vocab)]
        return [product for each in forward for product in (each, *each.gradients())]

    def sum_bytes(self) -> int:
        """Bytes of adding up the gradient of one layer's weights at one step: two are read, one is written."""
        return 3 * 8 * self.hidden**2 * ELEMENT_BYTES

    def other_bytes(self) -> float:
        """Bytes of a training step without its products and sums: pointwise operations, softmax, the update."""
        products = [*self.recurrent_products() * (LAYERS * self.seq), *self.output_products()]
        moved = sum(product.moved_bytes(None, ELEMENT_BYTES) for product in products)
        return self.moved_bytes() - moved - LAYERS * self.seq * self.sum_bytes()

    def times(self, target: Accelerator, tile: int | None) -> Mapping[str, float]:
        """Seconds of `recurrent` (one layer, one step, with its sum), `output` and `other` (of everything else)."""
        return {
            "recurrent": time_s(self.recurrent_products(), target, tile) + self.sum_bytes() / target.bytes_per_s,
            "output": time_s(self.output_products(), target, tile),
            "other": self.other_bytes() / target.bytes_per_s,
        }

    def step_s(self, target: Accelerator, tile: int | None) -> float:
        """One operation after the other, each at its own roofline. tile: of
        `analysis/project/projected_lstm_lm.py`."""
        times = self.times(target, tile)
        return LAYERS * self.seq * times["recurrent"] + times["output"] + times["other"]

    def _swapped(self, quantity: str) -> float:
        """wordlm's formula with the output layer's terms in h·v taken of h·p + p·v."""
        here = {"hidden": self.hidden, "vocab": self.vocab, "seq": self.seq, "batch": self.batch}
        whole = self.formulas.exact(quantity, **here)
        if self.projection is None:
            return float(whole)
        wider, longer = {**here, "hidden": self.hidden + 1}, {**here, "vocab": self.vocab + 1}
        both = self.formulas.exact(quantity, **{**wider, "vocab": self.vocab + 1})
        mixed = both - self.formulas.exact(quantity, **wider) - self.formulas.exact(quantity, **longer) + whole
        h, v, p = self.hidden, self.vocab, self.projection
        return float(whole + mixed * (h * p + p * v - h * v))


@dataclass(frozen=True)
class Product:
    """(m × k) by (k × n), done `times` times."""

    m: int
    k: int
    n: int
    times: int = 1

    @property
    def flop(self) -> int:
        """FLOP of all of them; a multiply-add is 2."""
        return 2 * self.m * self.k * self.n * self.times

    def moved_bytes(self, tile: int | None = None, element_bytes: int = 4) -> int:
        """Bytes of all of them. tile: its side; None: every matrix moves once, as if the cache had no end."""
        m, k, n = self.m, self.k, self.n
        if tile is None:
            return element_bytes * (m * k + k * n + m * n) * self.times
        each = m * k * -(-n // tile) + k * n * -(-m // tile) + 2 * m * n
        return element_bytes * each * self.times

    def gradients(self) -> tuple[Product, Product]:
        """The two products of its backward pass: (m × n) by (n × k) for the first matrix, (k × m) by (m × n) for the
        second."""
        return Product(self.m, self.n, self.k, self.times), Product(self.k, self.m, self.n, self.times)


def time_s(products: Iterable[Product], target: Accelerator, tile: int | None = None) -> float:
    """One after the other, each at its own roofline."""
    return sum(
        target.step(product.flop, product.moved_bytes(tile, target.element_bytes)).time_s for product in products
    )
