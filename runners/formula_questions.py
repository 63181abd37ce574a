"""What is asked of a model's formulas: read before anything takes long, answered once the formulas are there.

The command imports this module after its options were parsed: it loads sympy.

Formulas are compared with the step at the point that was asked for, and at a batch of one, which torch treats apart. A
footprint that does not equal that of the step where it can be checked is not printed, and a note says why. Where a
model has no formula as its operations change, the line says between which sizes, and the first that does.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import sympy

from analysis.catamount.graph_terms import FIXED, Term, terms
from analysis.catamount.rules import KEPT, RULES, footprint, optimizer_of
from analysis.devices.precisions import PRECISIONS
from analysis.footprint.minimum import minimal
from analysis.formula import derive, totals
from analysis.formula import footprint as peaks
from analysis.formula.constraints import Constraint, request
from analysis.formula.derive import Derived
from analysis.formula.evaluate import axes, parse_point, points, rows
from analysis.formula.expressions import Expr, rational, symbol
from analysis.formula.interpolate import Point, point_text, value_of
from analysis.formula.sampling import Sampler, SizeSample, Unfitted, restructured
from analysis.formula.solve import solve
from analysis.formula.symbolic_table import OWN, Convention, check
from analysis.formula.totals import FLOP, QUANTITIES, SIZED, Rates, rates, time_bound
from reports.formula import FormulaAnswer, measure
from runners.cli.arguments import choice_error
from runners.cli.exits import Mistake, as_mistake
from runners.cli.model_options import WORDS, hyper_of
from runners.cli.progress import passing
from runners.formula_points import BATCH, FixedSymbol, NotBuilt, Subject, fixed_symbol, sampler
from runners.formula_points import axes as sampled_axes
from runners.workers.any_model import get

SHORT = {
    "flop": "model_flop",
    "bytes": "bytes_accessed",
    "intensity": "operational_intensity",
    "footprint": "total_footprint_bytes",
    "eager_footprint": "eager_footprint_bytes",
    "minimal_footprint": "minimal_footprint_bytes",
    "kept": "kept_bytes",
    "io": "io_bytes",
}
"""What --solve may call a quantity beside its name."""

LARGEST = 10**300
"""Number in a request."""

CATAMOUNT = "catamount"

CHECKED_CALLS = 20_000
"""Operations of a step that is made for a check alone, at most."""

EAGER, MINIMAL = peaks.QUANTITIES

FOOTPRINT_NAMES = {EAGER: "eager footprint", MINIMAL: "minimal footprint"}

UNKNOWN = "what oneDNN's LSTM keeps for its backward pass has no known size"

WITHOUT = f"No formula of bytes accessed, total footprint and bytes kept, nor of FLOP / byte: {UNKNOWN}."


def answer(options: Namespace) -> FormulaAnswer:
    """Everything that is asked of the model's formulas. Raises Mistake, NotBuilt, Unfitted or NoSolution."""
    if options.fused and options.rules == CATAMOUNT:
        raise Mistake("--fused: Catamount's rules are of operations by themselves; leave one of the two out")
    subject = _subject(options)
    symbols = _symbols(options, subject)
    given, sweep, device = _point_of(options.at, symbols, subject), _swept(options.sweep, symbols), _rates(options)
    convention, _ = _convention(options, subject, symbols)
    placeholder = sympy.Add(*map(symbol, symbols))
    _requests(options.solve, dict.fromkeys(QUANTITIES, placeholder), symbols, device)  # mistakes come early
    looked_at = sampler(subject, lambda count: passing(f"{options.model}: {count} points"))
    try:
        derived, left_out = _derived(options, subject, symbols, looked_at, convention)
        symbols = [name for name in symbols if name not in left_out]
        point = {name: given.get(name, subject.value(name)) for name in symbols}
        late, notes = _checked_apart(looked_at, derived, point, convention)
    except Unfitted as fault:
        raise Unfitted(f"{options.model}: {fault}") from fault
    _, convention_terms = _convention(options, subject, symbols)
    footprints = _footprints(options.rules, derived, point, looked_at)
    whole = totals.totals(derived, convention_terms, footprints.formulas)
    at_least = {**totals.at_least(derived), **footprints.at_least}
    unknown = {**footprints.why, **_unknown_quantities(derived)}
    for text in options.solve:
        for word in re.findall(r"\w+", text):
            if (name := SHORT.get(word, word)) in unknown:
                raise Mistake(f"--solve {text!r}: there is no formula of {word}: {unknown[name]}")
    known = {name: form for name, form in whole.items() if form is not None}
    swept = {**known, **{f"at_least_{name}": form for name, form in at_least.items()}}
    fixed = {name: value for name, value in point.items() if name not in sweep}
    return FormulaAnswer(
        model=options.model,
        rules=options.rules,
        optimizer=subject.optimizer,
        precision=options.precision,
        symbols=tuple(symbols),
        totals=whole,
        terms=tuple(convention_terms),
        point=point,
        checked=(*derived.checked, *late),
        notes=(*_step_notes(subject), *left_out.values(), *notes, *_without(derived), *footprints.notes),
        minimal_proven=footprints.proven,
        axes=(*derived.axes, *derived.structural),
        samples=derived.samples,
        not_understood=dict(derived.not_understood),
        parts=totals.parts(derived, options.by) if options.by else {},
        by=options.by or "",
        at_least=at_least,
        solved=tuple(
            solve(constraint, {name: value for name, value in point.items() if name != constraint.unknown})
            for constraint in _requests(options.solve, known, symbols, device)
        ),
        swept=tuple(rows(swept, points(sweep, fixed))) if sweep else (),
    )


# --- what is asked ---------------------------------------------------------------------------------------------------


def _subject(options: Namespace) -> Subject:
    """The model with its sizes. Raises Mistake where it cannot be what it says."""
    given = hyper_of(options)
    with as_mistake(ValueError):
        hyper = get(options.model, **given).hyper
    own = optimizer_of(options.model) if options.rules == CATAMOUNT else "sgd"
    return Subject(
        model=options.model,
        sizes={name: value for name, value in hyper.items() if name not in WORDS},
        batch_size=options.batch_size,
        optimizer=options.optimizer or own,
        precision=options.precision,
        fixed={name: value for name, value in given.items() if not isinstance(value, int)},
        kept={name: value for name, value in hyper.items() if name in WORDS},
        fused=options.fused,
    )


def _symbols(options: Namespace, subject: Subject) -> list[str]:
    """The symbols that are asked for, all where none are. Raises Mistake for one that the model does not have."""
    fixed = FIXED.get(options.model, {}) if options.rules == CATAMOUNT else {}
    for name in options.symbols:
        if name not in subject.symbols:
            raise Mistake(f"--symbols: {options.model}: {choice_error('symbol', name, subject.symbols)}")
        if (size := subject.symbols[name]) in fixed:
            raise Mistake(f"--symbols: Catamount's graph of {options.model} has {name} {fixed[size]} and no other")
    for size, value in fixed.items():
        if subject.sizes[size] != value:
            raise Mistake(f"Catamount's graph of {options.model} has {size} {value}, got {subject.sizes[size]}")
    return list(options.symbols) or [name for name, size in subject.symbols.items() if size not in fixed]


def _point_of(text: str, symbols: Collection[str], subject: Subject) -> Mapping[str, int]:
    """The sizes of --at. Raises Mistake."""
    with as_mistake(ValueError, about="--at: "):
        given = parse_point(text) if text else {}
    for name in given:
        if name not in symbols:
            more = f"; {name} is a size of the model: name it in --symbols" if name in subject.symbols else ""
            raise Mistake(f"--at: {choice_error('symbol', name, symbols)}{more}")
    return given


def _swept(text: str, symbols: Collection[str]) -> Mapping[str, Sequence[int]]:
    with as_mistake(ValueError, about="--sweep: "):
        ranges = axes(text) if text else {}
        points(ranges)
    for name in ranges:
        if name not in symbols:
            raise Mistake(f"--sweep: {choice_error('symbol', name, symbols)}")
    return ranges


def _rates(options: Namespace) -> Rates | None:
    with as_mistake(ValueError, about="--device: "):
        return rates(options.device, PRECISIONS[options.precision].matmul_unit) if options.device else None


def _requests(
    texts: Sequence[str], known: Mapping[str, Expr], symbols: Collection[str], device: Rates | None
) -> list[Constraint]:
    """The requests. Raises Mistake for one that cannot be read."""
    quantities = {**known, **{short: known[name] for short, name in SHORT.items() if name in known}}
    if device is not None:
        quantities["ridge"] = rational(device.ridge)
        if {"model_flop", "bytes_accessed"} <= known.keys():
            quantities["time"] = time_bound(known["model_flop"], known["bytes_accessed"], device)
    own = {"time": "s", "ridge": "FLOP/B"}
    measures = {name: own.get(name) or measure(SHORT.get(name, name)) for name in quantities}
    requests = []
    for text in texts:
        if device is None and {"time", "ridge"} & set(text.split()):
            raise Mistake(f"--solve {text!r}: time and ridge are of a device: name one with --device")
        with as_mistake(ValueError, about="--solve: "):
            constraint = request(text, quantities, symbols, measures)
        if any(side.is_number and abs(side) > LARGEST for side in (constraint.left, constraint.right)):
            raise Mistake(f"--solve {text!r}: expected numbers up to 1e300")
        requests.append(constraint)
    return requests


def _convention(options: Namespace, subject: Subject, symbols: Collection[str]) -> tuple[Convention, list[Term]]:
    """What is counted how, and what the convention adds to this model beside its operations."""
    if options.rules != CATAMOUNT:
        return OWN, []
    meanings = {
        symbol(size): symbol(name) if name in symbols else sympy.Integer(subject.value(name))
        for name, size in subject.symbols.items()
    }
    own = [replace(term, expression=term.expression.xreplace(meanings)) for term in terms(options.model)]
    return Convention(RULES, footprint, KEPT), own


# --- the formulas ----------------------------------------------------------------------------------------------------


def _derived(
    options: Namespace, subject: Subject, symbols: Sequence[str], looked_at: Sampler, convention: Convention
) -> tuple[Derived, dict[str, str]]:
    """The formulas, and a note on each symbol that the model takes one value of, if nobody asked for it.

    Raises NotBuilt or Unfitted.
    """
    words = set(re.findall(r"\w+", " ".join((options.at, options.sweep, *options.solve, *options.symbols))))
    notes: dict[str, str] = {}
    while True:
        free = [name for name in symbols if name not in notes]
        try:
            return _formulas(subject, free, looked_at, convention), notes
        except FixedSymbol as fault:
            if fault.symbol in words or len(free) == 1:
                raise
            own = subject.value(fault.symbol)
            notes[fault.symbol] = f"{fault.symbol} stays {own}, as the model takes no neighbour of it with these."


def _formulas(subject: Subject, symbols: Sequence[str], looked_at: Sampler, convention: Convention) -> Derived:
    """The formulas in these symbols. Raises FixedSymbol for one that the model takes one value of."""
    where = sampled_axes(subject, symbols, looked_at)
    try:
        return derive.formulas(looked_at, where, convention)
    except NotBuilt as fault:
        raise fixed_symbol(fault, where, looked_at) from fault


def _checked_apart(
    looked_at: Sampler, derived: Derived, point: Point, convention: Convention
) -> tuple[list[Point], list[str]]:
    """The points (the one that was asked for, and a batch of one) at which the counts are the formulas', and notes on
    those at which there is no step. Raises Unfitted where the point that was asked for has other counts."""
    held, notes = [], []
    try:
        held += [point] if _holds(looked_at, derived, point, convention) else []
    except NotBuilt as fault:
        if isinstance(fault.__cause__, ValueError):
            raise Mistake(f"--at: {fault}") from fault
        notes.append(f"There is no step at the point of the values: {fault}.")
    single = _single(derived)
    if BATCH in point and point[BATCH] != 1:
        try:
            held += [single] if _holds(looked_at, derived, single, convention) else []
        except (NotBuilt, Unfitted) as fault:
            notes.append(f"Not for a batch of one: {fault}.")
    return held, notes


def _single(derived: Derived) -> Point:
    """A batch of one of the smallest model that was looked at."""
    return {**{axis.symbol: axis.base for axis in (*derived.axes, *derived.structural)}, BATCH: 1}


def _holds(looked_at: Sampler, derived: Derived, point: Point, convention: Convention) -> bool:
    """Whether the table at a point has the counts of the formulas; False also where none is made as the step is large.
    Raises Unfitted for other counts, NotBuilt where the model does not take the sizes."""
    calls = value_of(derived.total("calls"), point)
    if calls > CHECKED_CALLS or calls.denominator != 1:
        return False
    sample = looked_at(point)
    near = looked_at({**point, **{axis.symbol: axis.base for axis in derived.axes}})
    if near.structure != sample.structure:
        raise restructured(near, sample)
    check(derived.counts, sample, convention, bool(derived.structural), derived.without)
    return True


class FootprintFormulas(NamedTuple):
    """formulas: quantity → its formula. why: quantity → why it has none. notes: for a person. proven: no order needs
    less than the minimal one at the point; None: there is none. at_least: quantity without a formula, as a size is
    unknown → that of all other storages."""

    formulas: Mapping[str, Expr]
    why: Mapping[str, str]
    notes: Sequence[str] = ()
    proven: bool | None = None
    at_least: Mapping[str, Expr] = {}


def _footprints(rules: str, derived: Derived, point: Point, sample_at: Sampler) -> FootprintFormulas:
    """The footprints' formulas, each compared with the step where it can be looked at."""
    if rules == CATAMOUNT:
        return FootprintFormulas({}, dict.fromkeys(FOOTPRINT_NAMES, "Catamount has none"))
    footprints = peaks.footprints(derived, point)

    def differences(where: Point, quantities: Mapping[str, Callable[[SizeSample], int]]) -> dict[str, str]:
        """Quantity → how its formula differs from the step at a point, if such a step can be looked at."""
        try:
            sample = sample_at(where) if value_of(derived.total("calls"), where) <= CHECKED_CALLS else None
        except NotBuilt:
            sample = None
        differing = {}
        for name, of in quantities.items():
            if sample is not None and name in footprints.peaks:
                formula, exact = peaks.value(footprints.peaks[name], where), of(sample)
                if formula != exact:
                    differing[name] = f"at {point_text(where)} is {exact:,} B, where the formula gives {int(formula):,}"
        return differing

    looked_for: dict[str, Callable[[SizeSample], int]] = {EAGER: peaks.eager_peak}
    if derived.structural:  # else its order was found at this very point
        looked_for[MINIMAL] = lambda sample: minimal(sample.operations, sample.storages).minimal_bytes
    why = {**footprints.why, **differences(point, looked_for)}
    formulas = {name: footprints.formula(name) for name in footprints.peaks if name not in why}
    at_least = {}
    if formulas and derived.unsized:
        at_least = {name: formula for name, formula in formulas.items() if name == EAGER}
        why, formulas = {**why, **dict.fromkeys(formulas, UNKNOWN)}, {}
    notes = [f"No formula of the {FOOTPRINT_NAMES[name]}: {reason}." for name, reason in why.items()]
    notes += [WITHOUT] * bool(derived.unsized)
    if BATCH in point and formulas:
        notes += [
            f"The eager footprint {each}." for each in differences(_single(derived), {EAGER: peaks.eager_peak}).values()
        ]
    return FootprintFormulas(formulas, why, notes, footprints.proven if MINIMAL in formulas else None, at_least)


# --- notes -----------------------------------------------------------------------------------------------------------


def _step_notes(subject: Subject) -> Iterator[str]:
    if subject.fused:
        yield "Chains of pointwise operations count as one each; no compiler is claimed to do it."
    for name, value in subject.kept.items():
        yield f"The function's own {name} stays {value}: --{name} means another."


def _unknown_quantities(derived: Derived) -> dict[str, str]:
    """Quantity → why it has no formula: operations that no rule understands, storages of no known size."""
    flop = f"no rule understands {', '.join(derived.not_understood)}"
    hanging = ("operational_intensity", "time")
    why = dict.fromkeys((*SIZED, *hanging), UNKNOWN) if derived.unsized else {}
    return {**why, **dict.fromkeys((*FLOP, *hanging), flop)} if derived.not_understood else why


def _without(derived: Derived) -> Iterator[str]:
    """Why there is no formula of all FLOP."""
    if derived.without:
        places = ", ".join(sorted({str(place) for place, _ in derived.without}))
        yield f"No formula of all FLOP: those of {places} follow none (unequal windows)."
