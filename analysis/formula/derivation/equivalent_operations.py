"""Operations of tables side by side that differ in nothing that costs: they are counted once, and multiplied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from analysis.formula.derivation.sampling import Sample
from results.records import Operation


class Alike(NamedTuple):
    """Operations at one place that differ in nothing that costs. likeness: equal at all places for such as these; rows:
    the first of them, in each of the tables; calls: how many."""

    place: Any
    likeness: tuple[Any, ...]
    rows: tuple[Operation, ...]
    calls: int


def alike(samples: Sequence[Sample], place_of: Callable[[Operation], Any]) -> list[Alike]:
    """All operations of tables that are side by side, in order of the first of each. place_of: where one counts."""
    counts: dict[tuple[Any, ...], int] = {}
    rows_of: dict[tuple[Any, ...], tuple[Operation, ...]] = {}
    for rows in zip(*(sample.operations for sample in samples), strict=True):
        key = place_of(rows[0]), _likeness(rows)
        counts[key] = counts.get(key, 0) + 1
        rows_of.setdefault(key, rows)
    return [Alike(place, likeness, rows_of[place, likeness], calls) for (place, likeness), calls in counts.items()]


def _likeness(rows: Sequence[Operation]) -> tuple[Any, ...]:
    """Equal for operations of one table, or of tables side by side, that differ in nothing that costs: only in where
    they are. Sizes and attributes are told by the object, as the tracer keeps one for all calls of a signature."""
    first = rows[0]
    sizes = [id(part) for row in rows for part in (row.input_shapes, row.output_shapes, row.attributes)]
    storages = (*first.reads, *first.writes)
    return (first.name, first.kind, first.phase, first.input_names, first.input_dtypes, first.output_dtypes,
            *sizes, *map(storages.index, storages))  # fmt: skip
