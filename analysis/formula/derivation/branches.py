"""Where the operations of a step change between two points of its symbols, and which of them is the first to differ.

For a model that takes another course at some size no one formula holds; this finds the neighbouring sizes between which
it does so. Why it does is in the model's code, which is not looked at.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from analysis.formula.derivation.interpolate import Point, point_text
from analysis.formula.derivation.sampling import Sampler, SizeSample
from analysis.formula.derivation.symbolic_table import place_of
from results.records.operations import Operation

ROUNDS = 16
"""Points that are looked at between two, at most."""


@dataclass(frozen=True)
class Change:
    """Two samples, as near as could be had, whose operations differ."""

    before: SizeSample
    after: SizeSample

    @property
    def symbols(self) -> tuple[str, ...]:
        """In which the two points differ."""
        there = self.after.point
        return tuple(name for name, value in self.before.point.items() if there[name] != value)

    def __str__(self) -> str:
        """One clause, as in "the operations change between width 12 and 13: …"."""
        if len(self.symbols) == 1:
            (name,) = self.symbols
            where = f"{name} {self.before.point[name]} and {self.after.point[name]}"
        else:
            where = f"{point_text(self.before.point)} and {point_text(self.after.point)}"
        return f"the operations change between {where}: {difference(self.before, self.after)}"


def change(sample_at: Sampler, one: Point, other: Point, steps: Mapping[str, int]) -> Change | None:
    """The change that is met first on the way from one point to another; None where both have the same operations.

    steps: the least that each symbol moves by (1 where it is not there). Where a point on the way cannot be had
    (`sample_at` raises ValueError) the two samples are further apart.
    """
    way = [sample for sample in _way(sample_at, one, other) if sample is not None]
    for before, after in pairwise(way):
        if before.structure != after.structure:
            return _nearer(sample_at, Change(before, after), steps)
    return None


def _way(sample_at: Sampler, one: Point, other: Point) -> Iterator[SizeSample | None]:
    """From one point to the other, one symbol after another."""
    here = dict(one)
    yield sample_at(here)
    for symbol in one:
        if here[symbol] != other[symbol]:
            here = {**here, symbol: other[symbol]}
            yield _sample(sample_at, here)


def _sample(sample_at: Sampler, point: Point) -> SizeSample | None:
    try:
        return sample_at(point)
    except ValueError:
        return None


def _nearer(sample_at: Sampler, change: Change, steps: Mapping[str, int]) -> Change:
    """Narrows a change down to neighbours, by halves."""
    for _ in range(ROUNDS):
        if len(change.symbols) != 1:
            return change
        (symbol,) = change.symbols
        low, high = change.before.point[symbol], change.after.point[symbol]
        step = steps.get(symbol, 1)
        half = abs(high - low) // step // 2 * step
        middle = low + (half if high > low else -half)
        sample = _sample(sample_at, {**change.before.point, symbol: middle}) if half else None
        if sample is None:
            return change
        same = sample.structure == change.before.structure
        change = Change(sample, change.after) if same else Change(change.before, sample)
    return change


def difference(before: SizeSample, after: SizeSample) -> str:
    """What differs first between two tables that are not of one structure."""
    for was, now in zip_longest(before.operations, after.operations):
        if was is None or now is None or _kind(was) != _kind(now):
            return _instead(was, now)
    for (name, first), (other, second) in zip(before.parameters, after.parameters, strict=False):
        if (name, len(first)) != (other, len(second)):
            return f"the parameter {other} comes instead of {name}"
    if len(before.parameters) != len(after.parameters):
        return f"there are {len(after.parameters)} parameters instead of {len(before.parameters)}"
    return "the same operations keep other tensors"


def _kind(operation: Operation) -> tuple[str, str, Sequence[int], Sequence[int]]:
    shapes = (operation.input_shapes, operation.output_shapes)
    ranks = [[len(shape) for shape in each] for each in shapes]
    return operation.name, operation.phase, ranks[0], ranks[1]


def _instead(was: Operation | None, now: Operation | None) -> str:
    if was is None:
        return f"{place_of(now)} comes after all others" if now else ""
    if now is None:
        return f"{place_of(was)} does not come any more"
    if (was.name, was.module, was.phase) == (now.name, now.module, now.phase):
        return f"{place_of(now)} has tensors of other dimensions"
    return f"{place_of(now)} comes instead of {place_of(was)}"
