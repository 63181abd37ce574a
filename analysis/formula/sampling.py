"""Chooses the points at which a step is traced, until every size has a verified polynomial (`Form`).

A point has a value for each symbol (batch, width, …). `sample_sizes` takes a `Sampler` and the symbols' axes; the
sampler builds the model and traces a table at a point. Tables are traced at a base, along each axis and between the
axes. The samples (`Sizes`) are returned once every size has a `Form` that also holds at points that it was not fitted
to. Where the operations themselves change (layers, an unrolled loop), or a size has no form, `Unfitted` is raised.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from analysis.formula.interpolate import Fitter, Form, Point, Values, point_text, value_of
from results.records.counts import Operation, Storage

STRIDE = (1, 2, 5, 11, 22, 37, 63, 90, 124, 161, 199, 240, 283, 330)
"""Distances of an axis's points from the base, in steps of that axis; the first `AXIS_POINTS` are always used."""

AXIS_POINTS = 2
"""Number of initial points along an axis, besides the base."""

CHECKS = 2
"""Number of consecutive points, all symbols changed, at which every form must hold. The last is far from the base."""

FAR = 101
"""Least distance of the last check from the base, in steps: a size rounded to a multiple of 64 differs there."""

REACH = 512
"""Distance from the base, in steps, within which a sample is taken to tell two rounding rules apart."""

LONGEST = 60
"""Maximum number of samples."""


@dataclass(frozen=True)
class Axis:
    """Values at which a symbol is sampled: base, base + step, base + 2 step, …"""

    symbol: str
    base: int
    step: int = 1

    def value(self, steps: int) -> int:
        return self.base + steps * self.step


@dataclass(frozen=True)
class SizeSample:
    """A step's table at one point. parameters: (name, shape) of each."""

    point: Point
    operations: tuple[Operation, ...]
    storages: tuple[Storage, ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def structure(self) -> tuple[Any, ...]:
        """A key that is equal for two tables that only differ in sizes."""
        operations = [
            (o.name, o.phase, *map(len, o.input_shapes), -1, *map(len, o.output_shapes)) for o in self.operations
        ]
        parameters = [(name, len(shape)) for name, shape in self.parameters]
        return operations, parameters, [(s.role, s.born_index) for s in self.storages]


class Unfitted(ValueError):
    """A size or a count has no formula of a known form, and so there is no answer."""


class CountKey(NamedTuple):
    """Key of a count. Where a symbol multiplies modules, their numbers are *."""

    phase: str
    kind: str
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} in {self.module or 'the model itself'} ({self.phase})"


def count_key(operation: Operation, merged: bool = False) -> CountKey:
    """Return the key under which an operation counts. merged: replace numbers in module names by *."""
    module = re.sub(r"\d+", "*", operation.module) if merged else operation.module
    return CountKey(operation.phase, operation.kind, module, operation.name)


def restructured(base: SizeSample, sample: SizeSample) -> Unfitted:
    """Return the error for two samples of different structure. It names their sizes and the first difference."""
    symbols = [symbol for symbol in base.point if base.point[symbol] != sample.point[symbol]]
    old, new = (point_text({symbol: sample.point[symbol] for symbol in symbols}) for sample in (base, sample))
    return Unfitted(f"the operations change between {old} and {new}: {difference(base, sample)}")


def difference(before: SizeSample, after: SizeSample) -> str:
    """Describe the first difference between two tables of different structure."""
    pairs = zip_longest(before.structure[0], after.structure[0], before.operations, after.operations)
    for old, new, was, now in pairs:
        if was is None:
            return f"{count_key(now)} comes after all others"
        if now is None:
            return f"{count_key(was)} is missing"
        if old[:2] != new[:2]:
            return f"{count_key(now)} comes instead of {count_key(was)}"
        if old != new:
            return f"{count_key(now)} has tensors with other numbers of dimensions"
    return "the operations are the same, but parameters or storages differ"


Sampler = Callable[[Point], SizeSample]
"""A function from a point to the table there, which raises ValueError if the step cannot be traced."""


@dataclass(frozen=True)
class Sizes:
    """Samples whose sizes all have a form. fitted: number of samples, from the first, that forms were fitted to."""

    samples: tuple[SizeSample, ...]
    fitted: int
    fitter: Fitter

    def form(self, values: Values) -> Form:
        """Return the form of a size from its values, one per sample. Raises Unfitted if it has none."""
        form = self.fitter.fit(values[: self.fitted])
        if form is None or not self.holds(form, values):
            raise Unfitted(f"no formula goes through {', '.join(map(str, values[:6]))}, …")
        return form

    def holds(self, form: Form, values: Values) -> bool:
        """Return whether a form gives the values of the samples that it was not fitted to."""
        checks = zip(self.samples[self.fitted :], values[self.fitted :], strict=True)
        return all(value_of(form, sample.point) == value for sample, value in checks)


def sample_sizes(sample_at: Sampler, axes: Sequence[Axis], fixed: Point) -> Sizes:
    """Trace samples until all sizes have a form in the axes' symbols, and return them. fixed: values of other symbols.

    Raises Unfitted where the operations change, or a size has no form after LONGEST samples.
    """
    base = {**{axis.symbol: axis.base for axis in axes}, **fixed}
    first = sample_at(base)
    sampled: set[tuple[int, ...]] = set()

    def sample_point(point: Point) -> SizeSample:
        whole = {**base, **point}
        sampled.add(tuple(whole.values()))
        sample = sample_at(whole)
        if sample.structure != first.structure:
            raise restructured(first, sample)
        return sample

    used = {axis.symbol: AXIS_POINTS for axis in axes}
    samples = [first]
    for axis in axes:
        samples += [sample_point({axis.symbol: axis.value(steps)}) for steps in STRIDE[:AXIS_POINTS]]
    turns = (point for point in _between(axes) if tuple({**base, **point}.values()) not in sampled)
    checks: list[SizeSample] = []
    outer = [{axis.symbol: axis.value(FAR + 37 * position)} for position, axis in enumerate(axes)]
    while True:
        fitter = Fitter([sample.point for sample in samples])
        sizes_seen = columns(samples)
        unfitted = [values for values in sizes_seen if fitter.fit(values) is None]
        points = _further_points(fitter, unfitted, used, axes) or _deciding_points(fitter, unfitted or sizes_seen, axes)
        added = [sample_point(point) for point in points or ([next(turns)] if unfitted else [])]
        if not added:
            sizes = Sizes((*samples, *checks), len(samples), fitter)
            wrong = [v for v in columns(sizes.samples) if not sizes.holds(fitter.fit(v[: len(samples)]) or {}, v)]
            if not wrong and (len(checks) >= CHECKS or not axes):
                return sizes
            if not wrong:
                far = {axis.symbol: axis.value(FAR + 37 * i + len(samples)) for i, axis in enumerate(axes)}
                far_samples = _sample_if_possible(sample_point, far) if len(checks) == CHECKS - 1 else []
                checks += far_samples or [sample_point(next(turns))]
                continue
            if len(checks) == CHECKS:  # a rounding shows only far from the base, on an unknown axis
                added = [sample for point in outer for sample in _sample_if_possible(sample_point, point)]
                outer = []
        samples += [*checks, *added]
        checks = []
        if len(samples) > LONGEST:
            raise Unfitted(_unfitted_message(samples, unfitted))


def _sample_if_possible(sampler: Sampler, point: Point) -> list[SizeSample]:
    """Return the sample at a point; empty if the model refuses sizes that large."""
    try:
        return [sampler(point)]
    except Unfitted:
        raise
    except ValueError:
        return []


def _deciding_points(fitter: Fitter, sizes: Sequence[Values], axes: Sequence[Axis]) -> list[dict[str, int]]:
    """Return the next point along an axis where more than one rounding is possible; empty where none is."""
    among = {axis.symbol: [axis.value(steps) for steps in range(1, REACH)] for axis in axes}
    chosen = filter(None, (fitter.deciding_value(values, among) for values in sizes))
    return [dict([pair]) for pair in islice(chosen, 1)]


def _further_points(
    fitter: Fitter, unfitted: Sequence[Values], used: dict[str, int], axes: Sequence[Axis]
) -> list[dict[str, int]]:
    """Return the further points along axes on which a size has no form; empty if that is not the cause."""
    symbols = set().union(*(fitter.unfitted_symbols(values) for values in unfitted))
    points: list[dict[str, int]] = []
    for axis in axes:
        if axis.symbol in symbols and used[axis.symbol] < len(STRIDE):
            count = used[axis.symbol]
            used[axis.symbol] = min(len(STRIDE), count + 2)
            points += [{axis.symbol: axis.value(steps)} for steps in STRIDE[count : used[axis.symbol]]]
    return points


def _between(axes: Sequence[Axis]) -> Iterator[dict[str, int]]:
    """Yield the points at which all symbols change, each by another number of steps."""
    turn = 0
    while True:
        far = 29 * (turn // 29)
        yield {
            axis.symbol: axis.value(1 + far + (5 * turn + 3 * position + turn * position) % 29)
            for position, axis in enumerate(axes)
        }
        turn += 1


def _unfitted_message(samples: Sequence[SizeSample], unfitted: Sequence[Values]) -> str:
    """Return a message that names the first operation with a size that has no form."""
    missing = set(unfitted)
    for rows in zip(*(sample.operations for sample in samples), strict=True):
        tensors = zip(*((*row.input_shapes, *row.output_shapes) for row in rows), strict=True)
        for values in (values for shapes in tensors for values in zip(*shapes, strict=True) if values in missing):
            seen = ", ".join(map(str, values[:8]))
            return f"{rows[0].name} in {rows[0].module or 'the model'}: no formula goes through a size ({seen}, …)"
    return "no formula goes through the bytes of a tensor"


def columns(samples: Sequence[SizeSample]) -> list[Values]:
    """Return every distinct size of the tables, as its values in all samples."""
    shapes, attributes = set(), {}
    for rows in zip(*(sample.operations for sample in samples), strict=True):
        shapes |= {tuple([row.input_shapes for row in rows]), tuple([row.output_shapes for row in rows])}
        several = [row.attributes for row in rows]  # the tracer keeps one object for all calls of a signature
        attributes[tuple(map(id, several))] = several
    for column in zip(*(sample.parameters for sample in samples), strict=True):
        shapes.add(tuple((shape,) for _, shape in column))
    values_seen: dict[Values, None] = {}
    for tables in sorted(shapes):
        for forms in zip(*tables, strict=True):
            values_seen.update(dict.fromkeys(zip(*forms, strict=True)))
    for column in zip(*(sample.storages for sample in samples), strict=True):
        values_seen[tuple(storage.nbytes for storage in column)] = None
    for alternatives in attributes.values():
        merge_values(alternatives, lambda values: values_seen.setdefault(values))
    return list(values_seen)


def merge_values(values: Sequence[Any], size: Callable[[Values], Any]) -> Any:
    """Merge nested values into one, in which each integer that differs is replaced by `size` of its values. Where
    something else differs (a scale that is a root of a size), the first value stays."""
    first = values[0]
    if all(value is first or value == first for value in values):
        return first
    if isinstance(first, Mapping):
        return {key: merge_values([value.get(key) for value in values], size) for key in first}
    if isinstance(first, (list, tuple)) and len({len(value) for value in values}) == 1:
        return type(first)(merge_values(column, size) for column in zip(*values, strict=True))
    return size(tuple(values)) if all(type(value) is int for value in values) else first
