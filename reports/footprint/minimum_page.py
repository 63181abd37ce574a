"""docs/minimal-footprint.md: the least memory of a step over all orders, what bounds it, and what checkpointing brings.

Text around tables of numbers that `benchmarks/pages/minimal_footprint.py` finds. It traces and measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.footprint.schedule import Minimal
from analysis.footprint.step import Choice
from analysis.formula.derivation import Piece
from analysis.formula.derivation.footprint import QUANTITIES
from reports.footprint.checkpoints import modules
from reports.shared import markdown, markdown_table

MIB = 2**20


@dataclass(frozen=True)
class MinimalFootprint:
    """A model with what was found of it. last_use_bytes: the eager order, if everything went after its last use."""

    name: str
    batch_size: int
    optimizer: str
    operations: int
    last_use_bytes: int
    found: Minimal


@dataclass(frozen=True)
class Curve:
    """What checkpointing brings a model. minimal_bytes: of each choice."""

    model: MinimalFootprint
    choices: Sequence[Choice]
    minimal_bytes: Sequence[int]


def page(
    models: Iterable[MinimalFootprint], pieces: Mapping[str, Mapping[str, Sequence[Piece]]], curves: Iterable[Curve]
) -> str:
    """The whole page. pieces: model → footprint → its pieces."""
    shown = "\n\n".join(curve(each) for each in curves)
    return markdown("minimal_footprint", overview=overview(models), moves=moves(pieces), curves=shown)


def overview(models: Iterable[MinimalFootprint]) -> str:
    """The table of footprints."""
    header = (
        "model", "batch", "optimizer", "operations", "eager, MiB", "gone after last use", "minimal", "lower bound",
        "minimal ÷ eager", "its peak is at",
    )  # fmt: skip
    return markdown_table(header, map(line, models))


def line(model: MinimalFootprint) -> tuple[str, ...]:
    """A model's line of the table."""
    found = model.found
    return (
        model.name,
        str(model.batch_size),
        model.optimizer,
        f"{model.operations:,}",
        *(_mib(nbytes) for nbytes in (found.eager_bytes, model.last_use_bytes, found.minimal_bytes)),
        _mib(found.lower_bound_bytes) + ("" if found.proven else " (not reached)"),
        f"{found.minimal_bytes / found.eager_bytes:.3f}",
        _at(found.peak_at.operation, found.peak_at.module, found.peak_at.phase),
    )


def moves(pieces: Mapping[str, Mapping[str, Sequence[Piece]]]) -> str:
    """The table of where peaks move as the batch grows."""
    rows = []
    for model, found in pieces.items():
        for name in QUANTITIES:
            for piece in found[name]:
                at = _at(piece.place.name, piece.place.module, piece.place.phase)
                sample, beside = f"{int(piece.slope_bytes):,}", f"{int(piece.constant_bytes):,}"
                rows.append((model, name.partition("_")[0], str(piece.start), sample, beside, at))
    return markdown_table(("model", "footprint", "from batch", "bytes a sample", "beside", "at"), rows)


def curve(points: Curve) -> str:
    """What checkpointing brings a model, as a table."""
    rows = [
        (_mib(choice.peak_bytes), f"{choice.recomputed_ratio:.3f}", modules(choice), _mib(least))
        for choice, least in zip(points.choices, points.minimal_bytes, strict=True)
    ]
    table = markdown_table(("eager, MiB", "FLOP again ÷ forward", "stretches", "minimal, MiB"), rows)
    return f"{points.model.name}, batch {points.model.batch_size}, {points.model.optimizer}:\n\n{table}"


def _at(operation: str, module: str, phase: str) -> str:
    where = f" in {module}" if module else ""
    return f"`{operation}`{where} ({phase})"


def _mib(nbytes: int) -> str:
    return f"{nbytes / MIB:,.1f}"
