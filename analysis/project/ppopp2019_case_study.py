"""Reproduces the case study of "Beyond human-level accuracy" (PPoPP 2019): table 5, figures 11 and 12, section 6.

`case_study` takes the paper's inputs, assumptions and formulas and returns the derived values. `reproduced` returns a
`PaperCell` for every printed result of the paper. The model (`ProjectedLM`) has two LSTM layers; the last layer's state
is projected before the output layer. Its cost is `wordlm`'s with another output layer, and each time step adds a
layer's weight gradient to a sum. The step is evaluated at its whole roofline, then per operation with tiled products,
then on many accelerators. A product that exceeds the cache runs in square tiles. Each output tile reads the inputs
again (Coleman and McKinley, SIGPLAN Notices 30, 1995). The paper does not print the side of a tile and the share of a
link; both are calibrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.project import accelerator, ppopp2019
from analysis.project.accelerator import Accelerator
from analysis.project.domain import Formulas, shipped_formulas
from analysis.project.frontier import DAY_S
from analysis.project.ppopp2019 import (
    GIGA_BINARY,
    ROWS,
    DerivedValue,
    DerivedValues,
    Inputs,
    samples_of,
    sized,
    tables,
    target_of,
)

SIZES, TILED, LINKED = "case_hidden", "tile", "link"
"""Keys of the assumptions of the case study's stages."""

LAYER_NAMES = ("embedding", "LSTM 1", "LSTM 2", "output")


def reproduced(folder: Path = ppopp2019.FOLDER) -> list[ppopp2019.PaperCell]:
    """Return every printed result of the paper with the derived value."""
    paper, assumed, formulas = ppopp2019.inputs(folder), ppopp2019.assumptions(folder), shipped_formulas()
    results = {**tables(paper, assumed, formulas), **case_study(paper, assumed, formulas)}
    return ppopp2019.cells(results, folder)


def case_study(paper: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas]) -> DerivedValues:
    """Return the derived values of table 5, figures 11 and 12, section 6."""
    target, model = target_of(paper), model_of(paper, assumed, formulas)
    samples = samples_of(ROWS[0], paper, assumed)
    assert samples is not None
    results = _single(model, target, samples, int(assumed["tile"]))
    for stage in ("data parallel 1", "data parallel 2"):
        workers = int(paper["Table 5", stage, "workers"].value)
        step_s = data_parallel_s(model, target, workers, assumed)
        results |= _row(stage, model, target, samples, workers, 1, step_s)
        results["Table 5", stage, "memory"] = DerivedValue(memory(model, 3), (SIZES, "memory_ring"))
    results |= _layers(paper, assumed, model, target, samples)
    return results | _section6(results, paper, assumed, formulas, model, target)


def model_of(paper: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas]) -> ProjectedLM:
    """Return the case study's model."""
    return ProjectedLM(
        formulas["wordlm"],
        hidden=int(assumed["case_hidden"]),
        vocab=int(assumed["case_vocab"]),
        seq=int(assumed["case_seq"]),
        batch=int(paper["Table 3", "word LM", "sub-batch"].value),
        projection=int(assumed["case_projection"]),
    )


def data_parallel_s(model: ProjectedLM, target: Accelerator, workers: int, assumed: Mapping[str, float]) -> float:
    """Return the seconds of a data-parallel step with its communication."""
    return model.step_s(target, int(assumed["tile"])) + communication_s(model, target, workers, assumed)


def communication_s(model: ProjectedLM, target: Accelerator, workers: int, assumed: Mapping[str, float]) -> float:
    """Return the seconds of a ring for all gradients but the embedding's: a batch touches few of its rows, which are
    gathered."""
    sizes = model.parameters()
    dense = ELEMENT_BYTES * (LAYERS * sizes["recurrent"] + sizes["output"])
    sparse = ELEMENT_BYTES * model.batch * model.seq * model.hidden
    return accelerator.communication_s(dense, sparse, workers, target.link_bytes_per_s or 0.0, assumed["link"])


def memory(model: ProjectedLM, sums: int) -> float:
    """Return the GB as the paper counts them (GiB) of all weights and this many sums of one LSTM layer's gradients."""
    sizes = model.parameters()
    held = sizes["embedding"] + LAYERS * sizes["recurrent"] + sizes["output"] + sums * sizes["recurrent"]
    return ELEMENT_BYTES * held / GIGA_BINARY


def _single(model: ProjectedLM, target: Accelerator, samples: float, tile: int) -> DerivedValues:
    """Derive values on one accelerator, at the whole step's roofline and with tiled products."""
    whole, tiled_s = target.step(model.flop(), model.moved_bytes()), model.step_s(target, tile)
    best, tiled = (accelerator.epoch_s(samples, model.batch, 1, step_s) / DAY_S for step_s in (whole.time_s, tiled_s))
    days = DerivedValue(tiled, (SIZES, TILED, "sentences"))
    share = DerivedValue(model.flop() / tiled_s / target.peak_flop_per_s, (SIZES, TILED))
    held = DerivedValue(memory(model, 2), (SIZES, "memory"))
    return {
        ("Table 5", "best case", "epoch"): DerivedValue(best, (SIZES, "sentences")),
        ("Table 5", "best case", "utilization"): DerivedValue(whole.utilization_ratio),
        ("Table 5", "best case", "memory"): held,
        ("Table 5", "cache-aware", "epoch"): days,
        ("Table 5", "cache-aware", "utilization"): share,
        ("Table 5", "cache-aware", "memory"): held,
        ("Section 6", "case study", "cache-aware epoch"): days,
        ("Section 6", "case study", "step time"): DerivedValue(whole.time_s, (SIZES,)),
        ("Figure 12", "word LM", "utilization at 1"): share,
    }


def _row(
    stage: str,
    model: ProjectedLM,
    target: Accelerator,
    samples: float,
    workers: int,
    per_worker: int,
    step_s: float,
    more: tuple[str, ...] = (),
) -> DerivedValues:
    """Derive a stage of table 5, on workers of `per_worker` accelerators."""
    keys = (SIZES, TILED, LINKED, *more)
    days = accelerator.epoch_s(samples, model.batch, workers, step_s) / DAY_S
    return {
        ("Table 5", stage, "accelerators"): DerivedValue(workers * per_worker),
        ("Table 5", stage, "batch"): DerivedValue(workers * model.batch),
        ("Table 5", stage, "epoch"): DerivedValue(days, (*keys, "sentences")),
        ("Table 5", stage, "utilization"): DerivedValue(
            model.flop() / step_s / target.peak_flop_per_s / per_worker, keys
        ),
    }


def _layers(
    paper: Inputs, assumed: Mapping[str, float], model: ProjectedLM, target: Accelerator, samples: float
) -> DerivedValues:
    """Derive values for layers on separate accelerators, and the embedding split over them."""
    workers = int(paper["Table 5", "layer parallel", "workers"].value)
    per_worker = int(paper["Table 5", "layer parallel", "accelerators a worker"].value)
    times = model.times(target, int(assumed["tile"]))
    step_s = accelerator.pipelined_s([times["recurrent"]] * LAYERS, model.seq, times["output"])
    step_s += communication_s(model, target, workers, assumed)
    sizes = {layer: ELEMENT_BYTES * count / GIGA_BINARY for layer, count in model.parameters().items()}
    recurrent = sizes["recurrent"]
    pieces = (sizes["embedding"], 2 * recurrent, 2 * recurrent, sizes["output"] + recurrent)
    split = zip(LAYER_NAMES, pieces, accelerator.evened(pieces, 0), strict=True)
    results: DerivedValues = {
        ("Table 5", "layer parallel", "memory of all"): DerivedValue(sum(pieces), (SIZES, "memory_ring")),
        ("Section 6", "case study", "embedding"): DerivedValue(sizes["embedding"], (SIZES, "binary")),
    }
    for stage in ("layer parallel", "embedding split"):
        results |= _row(stage, model, target, samples, workers, per_worker, step_s, ("sequence",))
    for name, before, after in split:
        results["Table 5", "layer parallel", f"memory of {name}"] = DerivedValue(before, (SIZES, "binary"))
        results["Table 5", "embedding split", f"memory of {name}"] = DerivedValue(after, (SIZES, "memory_ring"))
    return results


def _section6(
    results: DerivedValues,
    paper: Inputs,
    assumed: Mapping[str, float],
    formulas: Mapping[str, Formulas],
    model: ProjectedLM,
    target: Accelerator,
) -> DerivedValues:
    """Return the values that section 6 and the figures state in their text."""
    domain, grown = sized(ROWS[0], paper, assumed, formulas)
    plain = {batch: plain_model(formulas, grown, batch) for batch in range(1, 1_000)}
    ridge = next(batch for batch, lm in plain.items() if lm.flop() / lm.moved_bytes() >= target.ridge)
    before = plain[domain.sub_batch]
    whole, unprojected = (target.step(lm.flop(), lm.moved_bytes()).time_s for lm in (model, before))
    at_ridge, chosen = (lm.flop() / lm.step_s(target, None) / target.flop_per_s for lm in (plain[ridge], before))
    tiled_days = results["Table 5", "cache-aware", "epoch"].value
    wanted = paper["Section 6", "case study", "days wanted"].value
    return {
        ("Section 6", "case study", "faster than word LM"): DerivedValue(unprojected / whole, (SIZES,)),
        ("Section 6", "case study", "accelerators for time"): DerivedValue(
            tiled_days / wanted, (SIZES, TILED, "sentences")
        ),
        ("Section 6", "case study", "accelerators for memory"): DerivedValue(
            -(-memory(model, 2) // (target.memory_bytes or 0.0)), (SIZES, "memory")
        ),
        ("Figure 12", "word LM", "epoch at 1024"): results["Table 5", "data parallel 1", "epoch"],
        ("Figure 12", "word LM", "utilization at 1024"): results["Table 5", "data parallel 1", "utilization"],
        ("Figure 11", "word LM", "lost at the ridge"): DerivedValue(1 - at_ridge),
        ("Figure 11", "word LM", "at the chosen"): DerivedValue(chosen),
        ("Figure 11", "word LM", "chosen over ridge's"): DerivedValue(domain.sub_batch / ridge),
    }


def plain_model(formulas: Mapping[str, Formulas], hidden: int, batch: int) -> ProjectedLM:
    """Return the word LM of table 3, without a projection, at a sub-batch."""
    sizes = ROWS[0].sizes
    return ProjectedLM(formulas["wordlm"], hidden, int(sizes["vocab"]), int(sizes["seq"]), batch)


LAYERS = 2
"""Number of layers in the graph of the formulas."""

ELEMENT_BYTES = 4


@dataclass(frozen=True)
class ProjectedLM:
    """The model's sizes, and wordlm's formulas. projection None: wordlm itself."""

    formulas: Formulas
    hidden: int
    vocab: int
    seq: int
    batch: int
    projection: int | None = None

    def flop(self) -> float:
        """Return all FLOP of a training step."""
        return self._swapped("all_flop")

    def moved_bytes(self) -> float:
        """Return the bytes of a training step, unfused, each matrix moved once."""
        return self._swapped("bytes_accessed")

    def parameters(self) -> Mapping[str, int]:
        """Return parameters by layer: embedding, one recurrent layer, output (with the projection)."""
        h, v, p = self.hidden, self.vocab, self.projection
        output = h * v + v if p is None else h * p + p * v + v
        return {"embedding": h * v, "recurrent": 8 * h * h + 4 * h, "output": output}

    def recurrent_products(self) -> list[Matmul]:
        """Return the products of one layer and one step: forward, then the gradients of its input and of its
        weights."""
        forward = Matmul(self.batch, 2 * self.hidden, 4 * self.hidden)
        return [forward, *forward.gradients()]

    def output_products(self) -> list[Matmul]:
        """Return the products of the output layer for all steps at once, forward and backward."""
        rows = self.batch * self.seq
        if self.projection is None:
            forward = [Matmul(rows, self.hidden, self.vocab)]
        else:
            forward = [
                Matmul(rows, self.hidden, self.projection),
                Matmul(rows, self.projection, self.vocab),
            ]
        return [product for first in forward for product in (first, *first.gradients())]

    def times(self, target: Accelerator, tile: int | None) -> Mapping[str, float]:
        """Return the seconds of `recurrent` (one layer, one step, with its sum), `output` and `other` (pointwise
        operations, softmax, the update). A sum adds the gradient of one layer's weights at one step: two matrices are
        read, one is written."""
        recurrent, output = self.recurrent_products(), self.output_products()
        sum_bytes = 3 * 8 * self.hidden**2 * ELEMENT_BYTES
        products = [*recurrent * (LAYERS * self.seq), *output]
        moved = sum(product.moved_bytes(None, ELEMENT_BYTES) for product in products)
        return {
            "recurrent": time_s(recurrent, target, tile) + sum_bytes / target.bytes_per_s,
            "output": time_s(output, target, tile),
            "other": (self.moved_bytes() - moved - LAYERS * self.seq * sum_bytes) / target.bytes_per_s,
        }

    def step_s(self, target: Accelerator, tile: int | None) -> float:
        """Return the seconds of all operations in sequence, each at its own roofline. tile: of its products; None:
        untiled."""
        times = self.times(target, tile)
        return LAYERS * self.seq * times["recurrent"] + times["output"] + times["other"]

    def _swapped(self, quantity: str) -> float:
        """Return wordlm's formula, with h·p + p·v in place of h·v in the output layer's terms."""
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
class Matmul:
    """A product of (m × k) by (k × n)."""

    m: int
    k: int
    n: int

    @property
    def flop(self) -> int:
        """FLOP, a multiply-add being 2."""
        return 2 * self.m * self.k * self.n

    def moved_bytes(self, tile: int | None = None, element_bytes: int = 4) -> int:
        """Return the bytes moved. tile: its side; None: every matrix moves once, as with an infinite cache."""
        m, k, n = self.m, self.k, self.n
        if tile is None:
            return element_bytes * (m * k + k * n + m * n)
        return element_bytes * (m * k * -(-n // tile) + k * n * -(-m // tile) + 2 * m * n)

    def gradients(self) -> tuple[Matmul, Matmul]:
        """Return the two products of its backward pass: (m × n) by (n × k) for the first matrix, (k × m) by (m × n) for
        the second."""
        return Matmul(self.m, self.n, self.k), Matmul(self.k, self.m, self.n)


def time_s(products: Iterable[Matmul], target: Accelerator, tile: int | None = None) -> float:
    """Return the seconds of the products in sequence, each at its own roofline."""
    return sum(
        target.step(product.flop, product.moved_bytes(tile, target.element_bytes)).time_s for product in products
    )
