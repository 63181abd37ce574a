"""Tables of one step at several points side by side: every size as its values at the points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.fitting import Values
from results.records import Operation

if TYPE_CHECKING:
    from analysis.sampling import Sample


def columns(samples: Sequence[Sample]) -> list[Values]:
    """Every size of the tables as its values in all samples, each such tuple once."""
    shapes, attributes = set(), []
    for rows in _unlike(samples):
        shapes.add(tuple([row.input_shapes for row in rows]))
        shapes.add(tuple([row.output_shapes for row in rows]))
        attributes.append([row.attributes for row in rows])
    for each in zip(*(sample.parameters for sample in samples), strict=True):
        shapes.add(tuple((shape,) for _, shape in each))
    found: dict[Values, None] = {}
    for tables in sorted(shapes):
        for forms in zip(*tables, strict=True):
            found.update(dict.fromkeys(zip(*forms, strict=True)))
    for each in zip(*(sample.storages for sample in samples), strict=True):
        found[tuple(storage.nbytes for storage in each)] = None
    for each_attributes in attributes:
        joined(each_attributes, lambda values: found.setdefault(values))
    return list(found)


def _unlike(samples: Sequence[Sample]) -> Iterable[tuple[Operation, ...]]:
    """The rows of tables side by side, of those that are known to be equal the first alone: the tracer keeps one object
    of each kind for all calls of a signature."""
    unlike: dict[tuple[int, ...], tuple[Operation, ...]] = {}
    for rows in zip(*(sample.operations for sample in samples), strict=True):
        key = tuple([id(part) for row in rows for part in (row.input_shapes, row.output_shapes, row.attributes)])
        unlike.setdefault(key, rows)
    return unlike.values()


def joined(values: Sequence[Any], size: Callable[[Values], Any]) -> Any:
    """One nested value in place of several that differ in whole numbers: each of those by `size`. Where something else
    differs (a scale that is a root of a size), the first's is kept."""
    first = values[0]
    if all(value is first or value == first for value in values):
        return first
    if isinstance(first, Mapping):
        return {key: joined([value.get(key) for value in values], size) for key in first}
    if isinstance(first, (list, tuple)) and len({len(value) for value in values}) == 1:
        return type(first)(joined(each, size) for each in zip(*values, strict=True))
    return size(tuple(values)) if all(type(value) is int for value in values) else first
