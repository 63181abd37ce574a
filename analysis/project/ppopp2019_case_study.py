"""The case study of "Beyond human-level accuracy" (PPoPP 2019): table 5, figures 11 and 12, section 6.

A word model with a projection (`ProjectedLM` below), first at the roofline of the whole
step, then with each operation at its own and products tiled, then on many accelerators
(`analysis/project/domain.py`). Two numbers are fitted, the tile and the link's share; everything else
follows.

A language model of LSTM layers whose last state is projected before the output layer (section 6.1 of the paper).

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
uses such a model and prints neither formula nor tile. The
assumption `tile` is the side with which this one gives the paper's result, a calibration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.project import accelerator, ppopp2019
from analysis.project.accelerator import Accelerator
from analysis.project.domain import Formulas, shipped_formulas
from analysis.project.frontier import DAY_S
from analysis.project.ppopp2019 import GIGA_BINARY, ROWS, Found, Inputs, Ours, samples_of, sized, tables, target_of

PAPER = "ppopp2019"

SIZES, TILED, LINKED = "case_hidden", "tile", "link"
"""Keys of the assumptions of its stages."""

LAYER_NAMES = ("embedding", "LSTM 1", "LSTM 2", "output")


def reproduced(folder: Path = ppopp2019.FOLDER) -> list[ppopp2019.PaperCell]:
    """Every printed result of the paper with what follows from its inputs."""
    given, assumed, formulas = (
        ppopp2019.inputs(PAPER, folder),
        ppopp2019.assumptions(PAPER, folder),
        shipped_formulas(),
    )
    results = {**tables(given, assumed, formulas), **case_study(given, assumed, formulas)}
    return ppopp2019.cells(PAPER, results, folder)


def case_study(given: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas]) -> Found:
    """Table 5, figures 11 and 12, section 6."""
    target, model = target_of(given), model_of(given, assumed, formulas)
    samples = samples_of(ROWS[0], given, assumed)
    assert samples is not None
    steps = samples / model.batch
    results: Found = {}
    _single(results, model, target, steps, int(assumed["tile"]))
    for option in ("data parallel 1", "data parallel 2"):
        workers = int(given("Table 5", option, "workers"))
        _row(results, option, model, target, steps, workers, 1, data_parallel_s(model, target, workers, assumed))
        results["Table 5", option, "memory"] = Ours(memory(model, 3), (SIZES, "memory_ring"))
    _layers(results, given, assumed, model, target, steps)
    _words(results, given, assumed, formulas, model, target, steps)
    return results


def model_of(given: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas]) -> ProjectedLM:
    """The case study's model."""
    return ProjectedLM(
        formulas["wordlm"],
        hidden=int(assumed["case_hidden"]),
        vocab=int(assumed["case_vocab"]),
        seq=int(assumed["case_seq"]),
        batch=int(given("Table 3", "word LM", "sub-batch")),
        projection=int(assumed["case_projection"]),
    )


def data_parallel_s(model: ProjectedLM, target: Accelerator, workers: int, assumed: Mapping[str, float]) -> float:
    """A step of one of so many workers, with its communication."""
    return model.step_s(target, int(assumed["tile"])) + communication_s(model, target, workers, assumed)


def communication_s(model: ProjectedLM, target: Accelerator, workers: int, assumed: Mapping[str, float]) -> float:
    """A ring for all gradients but the embedding's, which are gathered."""
    sizes = model.parameters()
    dense = ELEMENT_BYTES * (LAYERS * sizes["recurrent"] + sizes["output"])
    sparse = accelerator.sparse_gradient_bytes(model.batch, model.seq, model.hidden)
    assert target.link_bytes_per_s is not None
    return accelerator.communication_s(dense, sparse, workers, target.link_bytes_per_s, assumed["link"])


def memory(model: ProjectedLM, sums: int) -> float:
    """The paper's GB (GiB) of all weights and so many sums of one LSTM layer's gradients."""
    sizes = model.parameters()
    held = sizes["embedding"] + LAYERS * sizes["recurrent"] + sizes["output"] + sums * sizes["recurrent"]
    return ELEMENT_BYTES * held / GIGA_BINARY


def _single(results: Found, model: ProjectedLM, target: Accelerator, steps: float, tile: int) -> None:
    """One accelerator, at the roofline of the whole step and with tiled products."""
    whole = target.step(model.flop(), model.moved_bytes())
    results["Table 5", "best case", "epoch"] = Ours(steps * whole.time_s / DAY_S, (SIZES, "sentences"))
    results["Table 5", "best case", "utilization"] = Ours(whole.utilization_ratio)
    tiled = model.step_s(target, tile)
    days = Ours(steps * tiled / DAY_S, (SIZES, TILED, "sentences"))
    share = Ours(model.flop() / tiled / target.peak_flop_per_s, (SIZES, TILED))
    results["Table 5", "cache-aware", "epoch"] = results["Section 6", "case study", "cache-aware epoch"] = days
    results["Table 5", "cache-aware", "utilization"] = results["Figure 12", "word LM", "utilization at 1"] = share
    for stage in ("best case", "cache-aware"):
        results["Table 5", stage, "memory"] = Ours(memory(model, 2), (SIZES, "memory"))
    results["Section 6", "case study", "step time"] = Ours(whole.time_s, (SIZES,))


def _row(
    results: Found,
    stage: str,
    model: ProjectedLM,
    target: Accelerator,
    steps: float,
    workers: int,
    each: int,
    step_s: float,
    more: tuple[str, ...] = (),
) -> None:
    """A stage of table 5 on workers of `each` accelerators."""
    its = (SIZES, TILED, LINKED, *more)
    results["Table 5", stage, "accelerators"] = Ours(workers * each)
    results["Table 5", stage, "batch"] = Ours(workers * model.batch)
    results["Table 5", stage, "epoch"] = Ours(
        accelerator.epoch_s(steps * model.batch, model.batch, workers, step_s) / DAY_S, (*its, "sentences")
    )
    results["Table 5", stage, "utilization"] = Ours(model.flop() / step_s / target.peak_flop_per_s / each, its)


def _layers(
    results: Found,
    given: Inputs,
    assumed: Mapping[str, float],
    model: ProjectedLM,
    target: Accelerator,
    steps: float,
) -> None:
    """Layers on accelerators of their own, and the embedding split over them."""
    workers = int(given("Table 5", "layer parallel", "workers"))
    each = int(given("Table 5", "layer parallel", "accelerators a worker"))
    times = model.times(target, int(assumed["tile"]))
    step_s = accelerator.pipelined_s([times["recurrent"]] * LAYERS, model.seq, times["output"])
    step_s += communication_s(model, target, workers, assumed)
    for stage in ("layer parallel", "embedding split"):
        _row(results, stage, model, target, steps, workers, each, step_s, ("sequence",))
    embedding = ELEMENT_BYTES * model.parameters()["embedding"] / GIGA_BINARY
    recurrent, output = (ELEMENT_BYTES * model.parameters()[layer] / GIGA_BINARY for layer in ("recurrent", "output"))
    pieces = (embedding, 2 * recurrent, 2 * recurrent, output + recurrent)
    results["Table 5", "layer parallel", "memory of all"] = Ours(sum(pieces), (SIZES, "memory_ring"))
    for name, before, after in zip(LAYER_NAMES, pieces, accelerator.evened(pieces, 0), strict=True):
        results["Table 5", "layer parallel", f"memory of {name}"] = Ours(before, (SIZES, "binary"))
        results["Table 5", "embedding split", f"memory of {name}"] = Ours(after, (SIZES, "memory_ring"))
    results["Section 6", "case study", "embedding"] = Ours(embedding, (SIZES, "binary"))


def _words(
    results: Found,
    given: Inputs,
    assumed: Mapping[str, float],
    formulas: Mapping[str, Formulas],
    model: ProjectedLM,
    target: Accelerator,
    steps: float,
) -> None:
    """What section 6 and the figures say in words."""
    domain, grown = sized(ROWS[0], given, assumed, formulas)
    before = plain_model(formulas, grown, domain.sub_batch)
    whole = target.step(model.flop(), model.moved_bytes()).time_s
    ratio = target.step(before.flop(), before.moved_bytes()).time_s / whole
    results["Section 6", "case study", "faster than word LM"] = Ours(ratio, (SIZES,))
    tiled_days = steps * model.step_s(target, int(assumed["tile"])) / DAY_S
    wanted = given("Section 6", "case study", "days wanted")
    results["Section 6", "case study", "accelerators for time"] = Ours(tiled_days / wanted, (SIZES, TILED, "sentences"))
    assert target.memory_bytes is not None
    needed = -(-memory(model, 2) // target.memory_bytes)
    results["Section 6", "case study", "accelerators for memory"] = Ours(needed, (SIZES, "memory"))
    for column in ("epoch", "utilization"):
        results["Figure 12", "word LM", f"{column} at 1024"] = results["Table 5", "data parallel 1", column]
    plain = {batch: plain_model(formulas, grown, batch) for batch in range(1, 1_000)}
    ridge = next(batch for batch, each in plain.items() if each.flop() / each.moved_bytes() >= target.ridge)
    at_ridge, chosen = (each.flop() / each.step_s(target, None) / target.flop_per_s for each in (plain[ridge], before))
    results["Figure 11", "word LM", "lost at the ridge"] = Ours(1 - at_ridge)
    results["Figure 11", "word LM", "at the chosen"] = Ours(chosen)
    results["Figure 11", "word LM", "chosen over ridge's"] = Ours(domain.sub_batch / ridge)


def plain_model(formulas: Mapping[str, Formulas], hidden: int, batch: int) -> ProjectedLM:
    """The word LM of table 3, without a projection, at a sub-batch."""
    sizes = ROWS[0].sizes
    return ProjectedLM(formulas["wordlm"], hidden, int(sizes["vocab"]), int(sizes["seq"]), batch)


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
        `ProjectedLM`."""
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
    """(m × k) by (k × n)."""

    m: int
    k: int
    n: int

    @property
    def flop(self) -> int:
        """A multiply-add is 2."""
        return 2 * self.m * self.k * self.n

    def moved_bytes(self, tile: int | None = None, element_bytes: int = 4) -> int:
        """tile: its side; None: every matrix moves once, as if the cache had no end."""
        m, k, n = self.m, self.k, self.n
        if tile is None:
            return element_bytes * (m * k + k * n + m * n)
        return element_bytes * (m * k * -(-n // tile) + k * n * -(-m // tile) + 2 * m * n)

    def gradients(self) -> tuple[Product, Product]:
        """The two products of its backward pass: (m × n) by (n × k) for the first matrix, (k × m) by (m × n) for the
        second."""
        return Product(self.m, self.n, self.k), Product(self.k, self.m, self.n)


def time_s(products: Iterable[Product], target: Accelerator, tile: int | None = None) -> float:
    """One after the other, each at its own roofline."""
    return sum(
        target.step(product.flop, product.moved_bytes(tile, target.element_bytes)).time_s for product in products
    )
