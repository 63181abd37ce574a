"""The footprints among a model's formulas: found, compared with the step at the points that were traced, and explained.

A footprint that does not equal that of the step where it can be checked is not printed, and a note says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from analysis.footprint.schedule.minimum import minimal
from analysis.formula.derivation import footprint as derivation_footprint
from analysis.formula.derivation.derive import Derived
from analysis.formula.derivation.footprint_terms import peak_of
from analysis.formula.derivation.interpolate import Point, point_text, value_of
from analysis.formula.derivation.sampling import SizeSample
from analysis.formula.derivation.totals import Expr
from runners.formula.points import BATCH, NotBuilt

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
