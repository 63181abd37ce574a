"""The case study of "Beyond human-level accuracy" (PPoPP 2019): table 5, figures 11 and 12, section 6.

A word model with a projection (`analysis/project/projected_lstm_lm.py`), first at the roofline of the whole
step, then with each operation at its own and products tiled, then on many accelerators
(`analysis/project/data_parallel.py`). Two numbers are fitted, the tile and the link's share; everything else
follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from analysis.project import data_parallel
from analysis.project import results as papers_results
from analysis.project.accelerator import Accelerator
from analysis.project.frontier import DAY_S
from analysis.project.ppopp2019 import GIGA_BINARY, ROWS, Found, samples_of, sized, tables, target_of
from analysis.project.projected_lstm_lm import ELEMENT_BYTES, LAYERS, ProjectedLM
from analysis.project.results import Inputs, Ours
from analysis.project.shipped_formulas import Formulas, shipped

PAPER = "ppopp2019"

SIZES, TILED, LINKED = "case_hidden", "tile", "link"
"""Keys of the assumptions of its stages."""

LAYER_NAMES = ("embedding", "LSTM 1", "LSTM 2", "output")


def reproduced(folder: Path = papers_results.FOLDER) -> list[papers_results.PaperCell]:
    """Every printed result of the paper with what follows from its inputs."""
    given, assumed, formulas = (
        papers_results.inputs(PAPER, folder),
        papers_results.assumptions(PAPER, folder),
        shipped(),
    )
    ours = {**tables(given, assumed, formulas), **case_study(given, assumed, formulas)}
    return papers_results.cells(PAPER, ours, folder)


def case_study(given: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas]) -> Found:
    """Table 5, figures 11 and 12, section 6."""
    target, model = target_of(given), model_of(given, assumed, formulas)
    samples = samples_of(ROWS[0], given, assumed)
    assert samples is not None
    steps = samples / model.batch
    found: Found = {}
    _single(found, model, target, steps, int(assumed["tile"]))
    for option in ("data parallel 1", "data parallel 2"):
        workers = int(given("Table 5", option, "workers"))
        _row(found, option, model, target, steps, workers, 1, data_parallel_s(model, target, workers, assumed))
        found["Table 5", option, "memory"] = Ours(memory(model, 3), (SIZES, "memory_ring"))
    _layers(found, given, assumed, model, target, steps)
    _words(found, given, assumed, formulas, model, target, steps)
    return found


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
    sparse = data_parallel.sparse_gradient_bytes(model.batch, model.seq, model.hidden)
    assert target.link_bytes_per_s is not None
    return data_parallel.communication_s(dense, sparse, workers, target.link_bytes_per_s, assumed["link"])


def memory(model: ProjectedLM, sums: int) -> float:
    """The paper's GB (GiB) of all weights and so many sums of one LSTM layer's gradients."""
    sizes = model.parameters()
    held = sizes["embedding"] + LAYERS * sizes["recurrent"] + sizes["output"] + sums * sizes["recurrent"]
    return ELEMENT_BYTES * held / GIGA_BINARY


def _single(found: Found, model: ProjectedLM, target: Accelerator, steps: float, tile: int) -> None:
    """One accelerator, at the roofline of the whole step and with tiled products."""
    whole = target.step(model.flop(), model.moved_bytes())
    found["Table 5", "best case", "epoch"] = Ours(steps * whole.time_s / DAY_S, (SIZES, "sentences"))
    found["Table 5", "best case", "utilization"] = Ours(whole.utilization_ratio)
    tiled = model.step_s(target, tile)
    days = Ours(steps * tiled / DAY_S, (SIZES, TILED, "sentences"))
    share = Ours(model.flop() / tiled / target.peak_flop_per_s, (SIZES, TILED))
    found["Table 5", "cache-aware", "epoch"] = found["Section 6", "case study", "cache-aware epoch"] = days
    found["Table 5", "cache-aware", "utilization"] = found["Figure 12", "word LM", "utilization at 1"] = share
    for stage in ("best case", "cache-aware"):
        found["Table 5", stage, "memory"] = Ours(memory(model, 2), (SIZES, "memory"))
    found["Section 6", "case study", "step time"] = Ours(whole.time_s, (SIZES,))


def _row(
    found: Found,
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
    found["Table 5", stage, "accelerators"] = Ours(workers * each)
    found["Table 5", stage, "batch"] = Ours(workers * model.batch)
    found["Table 5", stage, "epoch"] = Ours(
        data_parallel.epoch_s(steps * model.batch, model.batch, workers, step_s) / DAY_S, (*its, "sentences")
    )
    found["Table 5", stage, "utilization"] = Ours(model.flop() / step_s / target.peak_flop_per_s / each, its)


def _layers(
    found: Found,
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
    step_s = data_parallel.pipelined_s([times["recurrent"]] * LAYERS, model.seq, times["output"])
    step_s += communication_s(model, target, workers, assumed)
    for stage in ("layer parallel", "embedding split"):
        _row(found, stage, model, target, steps, workers, each, step_s, ("sequence",))
    embedding = ELEMENT_BYTES * model.parameters()["embedding"] / GIGA_BINARY
    recurrent, output = (ELEMENT_BYTES * model.parameters()[layer] / GIGA_BINARY for layer in ("recurrent", "output"))
    pieces = (embedding, 2 * recurrent, 2 * recurrent, output + recurrent)
    found["Table 5", "layer parallel", "memory of all"] = Ours(sum(pieces), (SIZES, "memory_ring"))
    for name, before, after in zip(LAYER_NAMES, pieces, data_parallel.evened(pieces, 0), strict=True):
        found["Table 5", "layer parallel", f"memory of {name}"] = Ours(before, (SIZES, "binary"))
        found["Table 5", "embedding split", f"memory of {name}"] = Ours(after, (SIZES, "memory_ring"))
    found["Section 6", "case study", "embedding"] = Ours(embedding, (SIZES, "binary"))


def _words(
    found: Found,
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
    found["Section 6", "case study", "faster than word LM"] = Ours(ratio, (SIZES,))
    tiled_days = steps * model.step_s(target, int(assumed["tile"])) / DAY_S
    wanted = given("Section 6", "case study", "days wanted")
    found["Section 6", "case study", "accelerators for time"] = Ours(tiled_days / wanted, (SIZES, TILED, "sentences"))
    assert target.memory_bytes is not None
    needed = -(-memory(model, 2) // target.memory_bytes)
    found["Section 6", "case study", "accelerators for memory"] = Ours(needed, (SIZES, "memory"))
    for column in ("epoch", "utilization"):
        found["Figure 12", "word LM", f"{column} at 1024"] = found["Table 5", "data parallel 1", column]
    ridge = next(b for b in range(1, 10_000) if intensity(plain_model(formulas, grown, b)) >= target.ridge)
    lost = 1 - throughput(plain_model(formulas, grown, ridge), target) / target.flop_per_s
    kept = throughput(before, target) / target.flop_per_s
    found["Figure 11", "word LM", "lost at the ridge"] = Ours(lost)
    found["Figure 11", "word LM", "at the chosen"] = Ours(kept)
    found["Figure 11", "word LM", "chosen over ridge's"] = Ours(domain.sub_batch / ridge)


def plain_model(formulas: Mapping[str, Formulas], hidden: int, batch: int) -> ProjectedLM:
    """The word LM of table 3, without a projection, at a sub-batch."""
    sizes = ROWS[0].sizes
    return ProjectedLM(formulas["wordlm"], hidden, int(sizes["vocab"]), int(sizes["seq"]), batch)


def intensity(model: ProjectedLM) -> float:
    """FLOP a byte of the whole step."""
    return model.flop() / model.moved_bytes()


def throughput(model: ProjectedLM, target: Accelerator) -> float:
    """FLOP a second where each operation is at its own roofline, and no matrix moves twice."""
    return model.flop() / model.step_s(target, None)
