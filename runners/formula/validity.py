"""What is known of a model's formulas beyond themselves: whether they hold, their footprints, and why there are none.

Formulas are compared with the step at the point that was asked for, and at a batch of one, which torch treats apart. A
footprint that does not equal that of the step where it can be checked is not printed, and a note says why. Where a
model has no formula, `branched` looks at it again, at a few points: it gives the sizes between which its operations
change, and the first that does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.footprint.minimum import minimal
from analysis.formula.derivation import footprint as derivation_footprint
from analysis.formula.derivation.derive import Derived, Uninterpolated, change, difference
from analysis.formula.derivation.footprint_terms import peak_of
from analysis.formula.derivation.interpolate import Point, point_text, value_of
from analysis.formula.derivation.sampling import Axis, Restructured, SizeSample, Unfitted
from analysis.formula.derivation.symbolic_table import check
from analysis.formula.derivation.totals import Expr
from runners.cli.exits import Mistake
from runners.formula.points import BATCH, NotBuilt, Subject

SHOWN = 6
"""Values of a symbol whose numbers of operations are listed."""


def branched(
    fault: Restructured, subject: Subject, axes: Sequence[Axis], sample_at: Callable[[Point], SizeSample]
) -> str:
    """One line on a model that takes another course at some size."""
    steps = {axis.symbol: axis.step for axis in axes}
    found = change(sample_at, fault.base, fault.point, steps)
    if found is None:
        return f"{subject.model}: {fault}: not every time that it is looked at, so that chance may decide it"
    return f"{subject.model}: no formula holds for all of {' and '.join(found.symbols)}: {found}"


def repeated(
    fault: Uninterpolated, subject: Subject, axes: Sequence[Axis], sample_at: Callable[[Point], SizeSample]
) -> str:
    """One line on a model whose number of operations follows no formula, of the first symbol that changes it."""
    base = {axis.symbol: axis.base for axis in axes}
    axis = fault.axes[0]
    counts = [(axis.at(steps), _calls(sample_at, {**base, axis.symbol: axis.at(steps)})) for steps in range(SHOWN)]
    text = ", ".join(f"{calls:,} at {axis.symbol} {value}" for value, calls in counts if calls is not None)
    return f"{subject.model}: no formula in {axis.symbol} goes through the number of operations: {text}"


def _calls(sample_at: Callable[[Point], SizeSample], point: Point) -> int | None:
    try:
        return len(sample_at(point).operations)
    except NotBuilt:
        return None


CHECKED_CALLS = 20_000
"""Operations of a step that is made for a check alone, at most."""


def checked_apart(
    looked_at: Any, derived: Any, point: Mapping[str, int], convention: Any
) -> tuple[list[Mapping[str, int]], tuple[str, ...]]:
    """The points (the one that was asked for, and a batch of one) at which the counts are the formulas', and notes on
    those at which there is no step. Raises Unfitted where the point that was asked for has other counts."""
    found: list[Mapping[str, int]] = []
    notes = []
    try:
        found += [point] if _holds(looked_at, derived, point, convention) else []
    except NotBuilt as fault:
        if isinstance(fault.__cause__, ValueError):
            raise Mistake(f"--at: {fault}") from fault
        notes.append(f"There is no step at the point of the values: {fault}.")
    base = {axis.symbol: axis.base for axis in (*derived.axes, *derived.structural)}
    if BATCH in base and point[BATCH] != 1:
        single = {**base, BATCH: 1}
        try:
            found += [single] if _holds(looked_at, derived, single, convention) else []
        except (NotBuilt, Unfitted) as fault:
            notes.append(f"Not for a batch of one: {fault}.")
    return found, tuple(notes)


def _holds(looked_at: Any, derived: Any, point: Mapping[str, int], convention: Any) -> bool:
    """Whether the table at a point has the counts of the formulas; False also where none is made as the step is large.
    Raises Unfitted for other counts, NotBuilt where the model does not take the sizes."""
    calls = value_of(derived.total("calls"), point)
    if calls > CHECKED_CALLS or calls.denominator != 1:
        return False
    sample = looked_at(point)
    near = looked_at({**point, **{axis.symbol: axis.base for axis in derived.axes}})
    if near.structure != sample.structure:
        raise Restructured(near.point, point, difference(near, sample))
    check(derived.counts, sample, convention, bool(derived.structural), derived.without)
    return True


EAGER, MINIMAL = derivation_footprint.QUANTITIES

WORDS = {EAGER: "eager footprint", MINIMAL: "minimal footprint"}

UNKNOWN = "what oneDNN's LSTM keeps for its backward pass has no known size"

WITHOUT = f"No formula of bytes accessed, total footprint and bytes kept, nor of FLOP / byte: {UNKNOWN}."

OWN_RULES = "flopledger"


@dataclass(frozen=True)
class FootprintFormulas:
    """formulas: quantity → its formula. pieces: quantity → where its peak is as the batch grows, if that is a symbol.
    why: quantity → why it has none. notes: for a person. proven: no order needs less than the minimal one at the point;
    None: there is none. at_least: quantity without a formula, as a size is unknown → that of all other storages."""

    formulas: Mapping[str, Expr] = field(default_factory=dict)
    pieces: Mapping[str, tuple[derivation_footprint.Piece, ...]] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    proven: bool | None = None
    at_least: Mapping[str, Expr] = field(default_factory=dict)


def footprints(
    rules: str, derived: Derived, point: Point, sample_at: Callable[[Point], SizeSample], most: int
) -> FootprintFormulas:
    """The footprints' formulas. most: operations of a step that is looked at to check them, at most."""
    if rules != OWN_RULES:
        return FootprintFormulas(why={name: f"{rules.capitalize()} has none" for name in WORDS})
    found = derivation_footprint.footprints(derived, point)

    def sample(where: Point) -> SizeSample | None:
        try:
            return sample_at(where) if value_of(derived.total("calls"), where) <= most else None
        except NotBuilt:
            return None

    why = {**found.why, **_wrong(found, point, sample(point), bool(derived.structural))}
    kept = {name: peaks for name, peaks in found.peaks.items() if name not in why}
    at_least = {}
    if kept and derived.unsized:
        at_least = {EAGER: found.formula(EAGER)} if EAGER in kept else {}
        why, kept = {**why, **dict.fromkeys(kept, UNKNOWN)}, {}
    notes = [f"No formula of the {WORDS[name]}: {reason}." for name, reason in why.items()]
    pieces = {}
    notes += [WITHOUT] * bool(derived.unsized)
    if BATCH in point and kept:
        single = {**{axis.symbol: axis.base for axis in (*derived.axes, *derived.structural)}, BATCH: 1}
        notes += [f"The eager footprint {each}." for each in _wrong(found, single, sample(single), False).values()]
        pieces = {name: derivation_footprint.pieces(peaks, BATCH, point) for name, peaks in kept.items()}
    proven = found.proven if MINIMAL in kept else None
    return FootprintFormulas({name: found.formula(name) for name in kept}, pieces, why, tuple(notes), proven, at_least)


def _wrong(
    footprints: derivation_footprint.Footprints, where: Point, sample: SizeSample | None, searched: bool
) -> dict[str, str]:
    """Quantity → how its formula differs from the step at a point. searched: look at the minimal one, too."""
    wrong: dict[str, str] = {}
    for name, of in ((EAGER, peak_of), (MINIMAL, _least_of))[: 1 + searched]:
        if sample is not None and name in footprints.peaks:
            formula, exact = derivation_footprint.value(footprints.peaks[name], where), of(sample)
            if formula != exact:
                wrong[name] = f"at {point_text(where)} is {exact:,} B, where the formula gives {int(formula):,}"
    return wrong


def _least_of(sample: SizeSample) -> int:
    return minimal(sample.operations, sample.storages).minimal_bytes
