"""Answers the questions about a model's formulas: `answer` takes the command's options and returns a `FormulaAnswer`.

`answer` reads --at, --solve and --sweep before it does anything slow. The command imports this module only after it
parsed its options, since this module loads sympy. Formulas are compared with the traced step at the requested point,
and at a batch of one, which torch treats differently. A footprint formula that differs from the step's footprint is not
printed, and a note says why. A model whose operations change with its sizes may have no formula. The message then names
the first changed operation, and the sizes between which the operations change.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple, TypeVar

import sympy

from analysis.catamount.graph_terms import FIXED, Term, terms
from analysis.catamount.rules import RULES, VARIABLE_ROLES, footprint, optimizer_of
from analysis.devices.precisions import PRECISIONS
from analysis.footprint.minimum import minimal
from analysis.formula import derive
from analysis.formula import footprint as peaks
from analysis.formula.derive import QUANTITIES, Derived
from analysis.formula.expressions import Expr, rational, rows, symbol
from analysis.formula.footprint import EAGER, MINIMAL
from analysis.formula.interpolate import Point, point_text, value_of
from analysis.formula.requests import Constraint, Rates, axes, parse_point, points, rates, request, time_bound
from analysis.formula.sampling import Axis, Sampler, SizeSample, Unfitted, restructured
from analysis.formula.solve import NoSolution, solve
from analysis.formula.symbolic_table import OWN, Convention, check
from reports.formula import FormulaAnswer, measure
from results.errors import Unavailable
from runners.cli.arguments import choice_error
from runners.cli.exits import Mistake, as_mistake
from runners.cli.model_options import TEXT_OPTIONS, hyper_of
from runners.cli.output import show_transient
from runners.formula_points import BATCH, FixedSymbol, NotBuilt, SizedModel, fixed_symbol, sampler
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
"""Short names of quantities in --solve."""

LARGEST = 10**300
"""Largest number in a request."""

CATAMOUNT = "catamount"

Size = TypeVar("Size")

CHECKED_CALLS = 20_000
"""Maximum number of operations of a step that is made only for a check."""

FOOTPRINT_NAMES = {EAGER: "eager footprint", MINIMAL: "minimal footprint"}


def answer(options: Namespace) -> FormulaAnswer:
    """Return the formulas and the answers to all questions. Raises Mistake, or Unavailable for a step that follows no
    formula."""
    is_catamount = options.rules == CATAMOUNT
    if options.fused and is_catamount:
        raise Mistake("--fused: Catamount's rules are of operations by themselves; leave one of the two out")
    subject = _subject(options)
    symbols = _symbols(options, subject)
    fixed = _sizes("--at", parse_point, options.at, symbols, subject)
    sweep = _sizes("--sweep", axes, options.sweep, symbols, subject)
    with as_mistake(ValueError, about="--sweep: "):
        points(sweep, {})
    with as_mistake(ValueError, about="--device: "):
        device = rates(options.device, PRECISIONS[options.precision].matmul_unit) if options.device else None
    placeholder = sympy.Add(*map(symbol, symbols))
    _requests(options.solve, dict.fromkeys(QUANTITIES, placeholder), symbols, device, {})  # mistakes come early
    convention = Convention(RULES, footprint, VARIABLE_ROLES) if is_catamount else OWN
    looked_at = sampler(subject, lambda count: show_transient(f"{options.model}: {count} points"))
    try:
        derived, left_out = _derived(options, subject, symbols, looked_at, convention)
        symbols = [name for name in symbols if name not in left_out]
        point = {name: fixed.get(name, subject.value(name)) for name in symbols}
        samples, notes = _inspected(looked_at, derived, point, convention)
    except (NotBuilt, Unfitted) as fault:
        if str(fault.__cause__).startswith("--"):
            raise Mistake(str(fault.__cause__)) from fault
        raise Unavailable(f"{options.model}: {fault}" if isinstance(fault, Unfitted) else str(fault)) from fault
    convention_terms = _terms(subject, symbols) if is_catamount else []
    unknown = derive.unknown(derived)
    footprints = FootprintFormulas({}, dict.fromkeys(FOOTPRINT_NAMES, "Catamount has none"))
    if not is_catamount:
        footprints = _footprints(derived, point, *samples)
    whole = derive.totals(derived, convention_terms, footprints.formulas)
    known = {name: form for name, form in whole.items() if form is not None}
    at_least = {**derive.at_least(derived), **footprints.at_least}
    why = {**footprints.why, **unknown}
    if reason := unknown.get("model_flop", unknown.get("bytes_accessed")):
        why["time"] = reason
    with as_mistake(NoSolution, about="--solve: "):
        solved = [
            solve(constraint, {name: value for name, value in point.items() if name != constraint.unknown})
            for constraint in _requests(options.solve, known, symbols, device, why)
        ]
    swept = {**known, **{f"at_least_{name}": form for name, form in at_least.items()}}
    return FormulaAnswer(
        model=options.model,
        rules=options.rules,
        optimizer=subject.optimizer,
        precision=options.precision,
        symbols=tuple(symbols),
        totals=whole,
        terms=tuple(convention_terms),
        point=point,
        checked=(*derived.checked, *(sample.point for sample in samples if sample)),
        notes=(*_step_notes(subject, derived, unknown), *left_out.values(), *notes, *footprints.notes),
        minimal_proven=footprints.proven,
        axes=(*derived.axes, *derived.structural),
        samples=derived.samples,
        not_understood=dict(derived.unsupported),
        parts=derive.parts(derived, options.by) if options.by else {},
        by=options.by or "",
        at_least=at_least,
        solved=tuple(solved),
        swept=tuple(rows(swept, points(sweep, {name: point[name] for name in symbols if name not in sweep})))
        if sweep
        else (),
    )


# --- what is asked ---------------------------------------------------------------------------------------------------


def _subject(options: Namespace) -> SizedModel:
    """Return the model with its sizes. Raises Mistake for an unknown model or invalid sizes."""
    hyper_options = hyper_of(options)
    with as_mistake(ValueError):
        hyper = get(options.model, **hyper_options).hyper
    own = optimizer_of(options.model) if options.rules == CATAMOUNT else "sgd"
    return SizedModel(
        model=options.model,
        sizes={name: value for name, value in hyper.items() if name not in TEXT_OPTIONS},
        batch_size=options.batch_size,
        optimizer=options.optimizer or own,
        precision=options.precision,
        fixed={name: value for name, value in hyper_options.items() if not isinstance(value, int)},
        constant={name: value for name, value in hyper.items() if name in TEXT_OPTIONS},
        fused=options.fused,
    )


def _symbols(options: Namespace, subject: SizedModel) -> list[str]:
    """Return the requested symbols, by default all. Raises Mistake for one that the model does not have."""
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


def _sizes(
    option: str, read: Callable[[str], dict[str, Size]], text: str, symbols: Collection[str], subject: SizedModel
) -> dict[str, Size]:
    """Return symbol → its value in an option. Raises Mistake."""
    with as_mistake(ValueError, about=f"{option}: "):
        sizes = read(text) if text else {}
    for name in sizes:
        if name not in symbols:
            more = f"; {name} is a size of the model: name it in --symbols" if name in subject.symbols else ""
            raise Mistake(f"{option}: {choice_error('symbol', name, symbols)}{more}")
    return sizes


def _requests(
    texts: Sequence[str],
    known: Mapping[str, Expr],
    symbols: Collection[str],
    device: Rates | None,
    unknown: Mapping[str, str],
) -> list[Constraint]:
    """Return the requests. unknown: quantity without a formula → why. Raises Mistake for one that cannot be read."""
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
        for word in re.findall(r"\w+", text):
            if (name := SHORT.get(word, word)) in unknown:
                raise Mistake(f"--solve {text!r}: there is no formula of {word}: {unknown[name]}")
        with as_mistake(ValueError, about="--solve: "):
            constraint = request(text, quantities, symbols, measures)
        if any(side.is_number and abs(side) > LARGEST for side in (constraint.left, constraint.right)):
            raise Mistake(f"--solve {text!r}: expected numbers up to 1e300")
        requests.append(constraint)
    return requests


def _terms(subject: SizedModel, symbols: Collection[str]) -> list[Term]:
    """Return the terms that Catamount's graph of this model has in addition to the step's operations."""
    meanings = {
        symbol(size): symbol(name) if name in symbols else sympy.Integer(subject.value(name))
        for name, size in subject.symbols.items()
    }
    return [replace(term, expression=term.expression.xreplace(meanings)) for term in terms(subject.model)]


# --- the formulas ----------------------------------------------------------------------------------------------------


def _derived(
    options: Namespace, subject: SizedModel, symbols: Sequence[str], looked_at: Sampler, convention: Convention
) -> tuple[Derived, dict[str, str]]:
    """Return the formulas, and a note on each unrequested symbol of which the model accepts only one value.

    Raises NotBuilt or Unfitted.
    """
    used_names = set(re.findall(r"\w+", " ".join((options.at, options.sweep, *options.solve, *options.symbols))))
    notes: dict[str, str] = {}
    while True:
        free = [name for name in symbols if name not in notes]
        where: tuple[Axis, ...] = ()
        try:
            where = sampled_axes(subject, free, looked_at)
            return derive.formulas(looked_at, where, convention), notes
        except NotBuilt as fault:
            single = fixed_symbol(fault, where, looked_at)
            if not isinstance(single, FixedSymbol) or single.symbol in used_names or len(free) == 1:
                raise single from fault.__cause__ if single is fault else fault
            own = subject.value(single.symbol)
            notes[single.symbol] = f"{single.symbol} stays {own}, as the model takes no neighbour of it with these."


def _inspected(
    looked_at: Sampler, derived: Derived, point: Point, convention: Convention
) -> tuple[list[SizeSample | None], list[str]]:
    """Return the steps at the requested point and at a batch of one of the smallest model, if their counts equal the
    formulas'; else None, and notes say why. Raises Unfitted if the requested point has other counts."""
    samples: list[SizeSample | None] = [None, None]
    notes = []
    try:
        samples[0] = _agreeing(looked_at, derived, point, convention)
    except NotBuilt as fault:
        if isinstance(fault.__cause__, ValueError):
            raise Mistake(f"--at: {fault}") from fault
        notes.append(f"There is no step at the point of the values: {fault}.")
    single = {**{axis.symbol: axis.base for axis in (*derived.axes, *derived.structural)}, BATCH: 1}
    try:
        samples[1] = _agreeing(looked_at, derived, single, convention) if point.get(BATCH, 1) != 1 else None
    except (NotBuilt, Unfitted) as fault:
        notes.append(f"The formulas do not hold for a batch of one: {fault}.")
    return samples, notes


def _agreeing(looked_at: Sampler, derived: Derived, point: Point, convention: Convention) -> SizeSample | None:
    """Return the step at a point, whose counts equal the formulas'; None if it is too large to be made. Raises Unfitted
    for other counts, NotBuilt if the model does not accept the sizes."""
    calls = value_of(derived.total("calls"), point)
    if calls > CHECKED_CALLS or calls.denominator != 1:
        return None
    sample = looked_at(point)
    near = looked_at({**point, **{axis.symbol: axis.base for axis in derived.axes}})
    if near.structure != sample.structure:
        raise restructured(near, sample)
    check(derived.counts, sample, convention, bool(derived.structural), derived.without)
    return replace(sample, point=point)


class FootprintFormulas(NamedTuple):
    """Formulas of the footprint. formulas: quantity → its formula. why: quantity → why it has none. notes: sentences
    for the reader. proven: whether no order needs less than the minimal footprint at the point; None: no formula of it.
    at_least: quantity without a formula because a size is unknown → formula of all other storages."""

    formulas: dict[str, Expr]
    why: dict[str, str]
    notes: Sequence[str] = ()
    proven: bool | None = None
    at_least: Mapping[str, Expr] = {}


def _footprints(
    derived: Derived, point: Point, at_point: SizeSample | None, single: SizeSample | None
) -> FootprintFormulas:
    """Return the footprints' formulas, each compared with the steps that could be made."""
    footprints = peaks.footprints(derived, point)
    exact = {EAGER: peaks.eager_peak(at_point)} if at_point else {}
    if at_point and derived.structural:  # else its order was found at this very point
        exact[MINIMAL] = minimal(at_point.operations, at_point.storages).minimal_bytes
    formulas, why, at_least = dict[str, Expr](), dict(footprints.why), dict[str, Expr]()
    for name, forms in footprints.peaks.items():
        largest = peaks.value(forms, point)
        if exact.get(name, largest) != largest:
            why[name] = _difference(point, exact[name], largest)
        elif not derived.unsized:
            formulas[name] = footprints.formula(name)
        else:
            why[name] = derive.UNSIZED
            if name == EAGER:
                at_least[name] = footprints.formula(name)
    notes = [f"No formula of the {FOOTPRINT_NAMES[name]}: {reason}." for name, reason in why.items()]
    if single and EAGER in formulas:
        needed, largest = peaks.eager_peak(single), peaks.value(footprints.peaks[EAGER], single.point)
        notes += [f"Eager footprint: {_difference(single.point, needed, largest)}."] if needed != largest else []
    return FootprintFormulas(formulas, why, notes, footprints.proven if MINIMAL in formulas else None, at_least)


def _difference(point: Point, exact: int, largest: int | Fraction) -> str:
    return f"at {point_text(point)} the step needs {exact:,} B, but the formula gives {int(largest):,} B"


def _step_notes(subject: SizedModel, derived: Derived, unknown: Mapping[str, str]) -> Iterator[str]:
    if subject.fused:
        yield "Chains of pointwise operations count as one each; no compiler is claimed to do it."
    for name, value in subject.constant.items():
        yield f"The function's own {name} stays {value}: --{name} means another."
    if derived.without:
        yield f"No formula of all FLOP: {unknown['all_flop']}."
    if derived.unsized:
        yield f"No formula of bytes accessed, total footprint and bytes kept, nor of FLOP / byte: {derive.UNSIZED}."
