"""What is asked of a model's formulas: read before anything takes long, answered once the formulas are there.

The command imports this module after its options were parsed: it loads sympy.

Formulas are compared with the step at the point that was asked for, and at a batch of one, which torch treats apart. A
footprint that does not equal that of the step where it can be checked is not printed, and a note says why. Where a
model has no formula, `branched` gives the sizes between which its operations change, and the first that does.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

from analysis.catamount.graph_terms import FIXED, terms
from analysis.catamount.rules import KEPT, RULES, footprint, optimizer_of
from analysis.devices.precisions import PRECISIONS
from analysis.footprint.minimum import minimal
from analysis.formula.algebra.constraints import request
from analysis.formula.algebra.evaluate import MOST_POINTS, axes, parse_point, points, rows
from analysis.formula.algebra.expressions import Expr, names, parse, rational, symbol
from analysis.formula.algebra.solve import solve
from analysis.formula.derivation import derive, totals
from analysis.formula.derivation import footprint as derivation_footprint
from analysis.formula.derivation.derive import Derived, Uninterpolated, change, difference
from analysis.formula.derivation.footprint_terms import peak_of
from analysis.formula.derivation.interpolate import Point, point_text, value_of
from analysis.formula.derivation.sampling import Axis, Restructured, SizeSample, Unfitted
from analysis.formula.derivation.symbolic_table import OWN, Convention, check
from analysis.formula.derivation.totals import FLOP, QUANTITIES, SIZED, Term, rates, time_bound
from reports.formula import FormulaAnswer, Solved, measure
from runners.cli.arguments import choice_error
from runners.cli.exits import Mistake, as_mistake
from runners.cli.model_options import WORDS, hyper_of
from runners.cli.progress import passing
from runners.formula.points import (
    BATCH,
    FixedSymbol,
    NotBuilt,
    Subject,
    fixed_symbol,
    limits,
    names_of,
    sampler,
    smallest,
)
from runners.formula.points import axes as sampled_axes
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


def point_of(text: str, symbols: Sequence[str], subject: Subject) -> dict[str, int]:
    """The point that is asked for, other symbols at the model's own sizes. Raises Mistake."""
    with as_mistake(ValueError, about="--at: "):
        given = parse_point(text) if text else {}
    for name in given:
        more = f"; {name} is a size of the model: name it in --symbols" if name in subject.symbols else ""
        _check("--at", name, symbols, more)
    return {name: given.get(name, subject.value(name)) for name in symbols}


def _check(option: str, name: str, symbols: Sequence[str], more: str = "") -> None:
    """Raises Mistake for a name that is no symbol. more: said after it."""
    if name not in symbols:
        raise Mistake(f"{option}: {choice_error('symbol', name, symbols)}{more}")


@dataclass(frozen=True)
class Questions:
    """The questions of a command line, read."""

    symbols: tuple[str, ...]
    solve: tuple[str, ...]
    sweep: Mapping[str, Sequence[int]]
    rates: Any

    @classmethod
    def of(cls, options: Namespace, symbols: Sequence[str]) -> Questions:
        """Raises Mistake for a question that cannot be one."""
        made = cls(
            symbols=tuple(symbols),
            solve=tuple(options.solve),
            sweep=_swept(options.sweep, symbols),
            rates=_rates(options.device, options.precision) if options.device else None,
        )
        placeholder = sum((symbol(name) for name in symbols), symbol(symbols[0]))
        made._requests(dict.fromkeys(QUANTITIES, placeholder))
        return made

    def answered(
        self,
        whole: Mapping[str, Expr],
        point: Mapping[str, int],
        why: Mapping[str, str] = MappingProxyType({}),
        at_least: Mapping[str, Expr] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The answers, by field of `reports.formula.Answer`. why: why quantities have no formula. at_least: of
        those, the formulas of what is known, which a sweep has, too.

        Raises NoSolution where one has none, Mistake for what is asked of a quantity without formula.
        """
        for text in self.solve:
            for word in re.findall(r"\w+", text):
                if (name := SHORT.get(word, word)) in why:
                    raise Mistake(f"--solve {text!r}: there is no formula of {word}: {why[name]}")
        known = {f"at_least_{name}": formula for name, formula in at_least.items()}
        formulas = {name: formula for name, formula in {**whole, **known}.items() if formula is not None}
        fixed = {name: value for name, value in point.items() if name not in self.sweep}
        return {
            "solved": tuple(self._solved(whole, point)),
            "swept": tuple(rows(formulas, points(self.sweep, fixed))) if self.sweep else (),
        }

    def _quantities(self, whole: Mapping[str, Expr]) -> dict[str, Expr]:
        known = {name: formula for name, formula in whole.items() if formula is not None}
        found = {**known, **{short: known[name] for short, name in SHORT.items() if name in known}}
        if self.rates is not None:
            peak, bandwidth = self.rates.peak_flop_per_s, self.rates.bandwidth_bytes_per_s
            if whole["model_flop"] is not None and whole["bytes_accessed"] is not None:
                found["time"] = time_bound(whole["model_flop"], whole["bytes_accessed"], peak, bandwidth)
            found["ridge"] = rational(self.rates.ridge)
        return found

    def _requests(self, whole: Mapping[str, Expr]) -> list[tuple[Any, str]]:
        """Each request with the measure of its left side. Raises Mistake for one that cannot be read."""
        quantities = self._quantities(whole)
        own = {"time": "s", "ridge": "FLOP/B"}
        measures = {name: own.get(name) or measure(SHORT.get(name, name)) for name in quantities}
        found = []
        for text in self.solve:
            if self.rates is None and {"time", "ridge"} & set(text.split()):
                raise Mistake(f"--solve {text!r}: time and ridge are of a device: name one with --device")
            with as_mistake(ValueError, about="--solve: "):
                asked = request(text, quantities, self.symbols, measures)
            if any(side.is_number and abs(side) > LARGEST for side in (asked.left, asked.right)):
                raise Mistake(f"--solve {text!r}: expected numbers up to 1e300")
            first = next((word for word in text.replace("(", " ").split() if word in measures), "")
            found.append((asked, measures.get(first, "")))
        return found

    def _solved(self, whole: Mapping[str, Expr], point: Mapping[str, int]) -> list[Solved]:
        found = []
        for asked, unit in self._requests(whole):
            fixed = {name: value for name, value in point.items() if name != asked.unknown}
            found.append(Solved(asked.text, solve(asked, fixed, unit), unit))
        return found


def _swept(text: str, symbols: Sequence[str]) -> Mapping[str, Sequence[int]]:
    with as_mistake(ValueError, about="--sweep: "):
        found = axes(text) if text else {}
    for name in found:
        _check("--sweep", name, symbols)
    if (count := prod(map(len, found.values()))) > MOST_POINTS:
        raise Mistake(f"--sweep: expected at most {MOST_POINTS:,} points, got {count:,}")
    return found


def _rates(device: str, precision: str) -> Any:

    with as_mistake(ValueError, about="--device: "):
        return rates(device, PRECISIONS[precision].matmul_unit)


CATAMOUNT = "catamount"


def answer(options: Namespace) -> FormulaAnswer:
    """Everything that is asked of the model's formulas. Raises Mistake, NotBuilt, Unfitted or NoSolution."""
    if options.fused and options.rules == CATAMOUNT:
        raise Mistake("--fused: Catamount's rules are of operations by themselves; leave one of the two out")
    subject = _subject(options)
    symbols = _symbols(options, subject)
    point = point_of(options.at, symbols, subject)
    convention, terms = _convention(options, subject, symbols)
    asked = Questions.of(options, symbols)  # mistakes are reported before anything takes long
    looked_at = sampler(subject, lambda count: passing(f"{options.model}: {count} points"))
    derived, alone = _derived(options, subject, symbols, looked_at, convention)
    if alone:
        symbols = [name for name in symbols if name not in alone]
        point = {name: point[name] for name in symbols}
        convention, terms = _convention(options, subject, symbols)
        asked = replace(asked, symbols=tuple(symbols))
    try:
        late, notes = checked_apart(looked_at, derived, point, convention)
    except Restructured as fault:
        raise Unfitted(branched(fault, subject, derived.axes, looked_at)) from fault
    peaks = footprints(options.rules, derived, point, looked_at, CHECKED_CALLS)
    whole = totals.totals(derived, terms, peaks.formulas)
    at_least = {**totals.at_least(derived), **peaks.at_least}
    changed = ("Chains of pointwise operations count as one each; no compiler is claimed to do it.",)
    return FormulaAnswer(
        model=options.model,
        rules=options.rules,
        optimizer=subject.optimizer,
        precision=options.precision,
        symbols=tuple(symbols),
        totals=whole,
        terms=tuple(terms),
        point=point,
        checked=(*derived.checked, *late),
        notes=(
            *(changed if subject.fused else ())
            + tuple(
                f"The function's own {name} stays {value}: --{name} means another."
                for name, value in subject.kept.items()
            ),
            *alone.values(),
            *notes,
            *_idle(whole, symbols),
            *_without(derived),
            *peaks.notes,
        ),
        minimal_proven=peaks.proven,
        axes=(*derived.axes, *derived.structural),
        samples=derived.samples,
        not_understood=dict(derived.not_understood),
        parts=totals.parts(derived, options.by) if options.by else {},
        by=options.by or "",
        at_least=at_least,
        **asked.answered(whole, point, {**peaks.why, **_unknown_quantities(derived)}, at_least),
    )


def _derived(
    options: Namespace, subject: Subject, symbols: Sequence[str], looked_at: Any, convention: Any
) -> tuple[Derived, dict[str, str]]:
    """The formulas, and a note on each symbol that the model takes one value of, if nobody asked for it.

    Raises NotBuilt or Unfitted.
    """
    asked = (options.at, options.sweep, *options.solve, *options.symbols)
    words = set(re.findall(r"\w+", " ".join(asked)))
    notes: dict[str, str] = {}
    while True:
        kept = [name for name in symbols if name not in notes]
        try:
            return _formulas(subject, kept, looked_at, convention), notes
        except FixedSymbol as fault:
            if fault.symbol in words or len(kept) == 1:
                raise
            own = subject.value(fault.symbol)
            notes[fault.symbol] = f"{fault.symbol} stays {own}, as the model takes no neighbour of it with these."


def _formulas(subject: Subject, symbols: Sequence[str], looked_at: Any, convention: Any) -> Derived:
    """The formulas in these symbols. Raises Alone for one that the model takes one value of."""
    where = sampled_axes(subject, symbols, looked_at)
    try:
        return derive.formulas(looked_at, where, convention)
    except Restructured as fault:
        raise Unfitted(branched(fault, subject, where, looked_at)) from fault
    except derive.Uninterpolated as fault:
        raise Unfitted(repeated(fault, subject, where, looked_at)) from fault
    except NotBuilt as fault:
        raise fixed_symbol(fault, where, looked_at) from fault


def _unknown_quantities(derived: Any) -> dict[str, str]:
    """Quantity → why it has no formula: operations that no rule understands, storages of no known size."""
    names = ", ".join(derived.not_understood)
    flop, sized = f"no rule understands {names}", dict.fromkeys(SIZED, UNKNOWN) if derived.unsized else {}
    why = {**dict.fromkeys(FLOP, flop), **sized} if names else sized
    return (
        {**why, "operational_intensity": flop if names else UNKNOWN, "time": flop if names else UNKNOWN} if why else {}
    )


def _without(derived: Any) -> tuple[str, ...]:
    """Why there is no formula of all FLOP."""
    places = sorted({str(place) for place, _ in derived.without})
    if not places:
        return ()
    return (f"No formula of all FLOP: those of {', '.join(places)} follow none (unequal windows).",)


def _idle(whole: Mapping[str, Any], symbols: Sequence[str]) -> tuple[str, ...]:
    """A note on symbols that change nothing."""
    seen = set().union(*(names(formula) for formula in whole.values() if formula is not None))
    idle = [name for name in symbols if name not in seen]
    return (f"{' and '.join(idle)} {'change' if len(idle) > 1 else 'changes'} nothing of these.",) if idle else ()


def _subject(options: Namespace) -> Subject:
    """The model with its sizes. Raises Mistake where it cannot be what it says."""
    given = hyper_of(options)
    words = {name: value for name, value in given.items() if not isinstance(value, int)}
    with as_mistake(ValueError):
        workload = get(options.model, **given)
    sizes = {name: value for name, value in workload.hyper.items() if name not in WORDS}
    return Subject(
        model=options.model,
        sizes=sizes,
        fixed=words,
        symbols=names_of(sizes),
        batch_size=options.batch_size,
        optimizer=options.optimizer or _optimizer(options),
        precision=options.precision,
        smallest=smallest(options.model),
        limits=limits(options.model),
        kept={name: value for name, value in workload.hyper.items() if name in WORDS},
        fused=options.fused,
    )


def _optimizer(options: Namespace) -> str:
    if options.rules == CATAMOUNT:
        return optimizer_of(options.model)
    return "sgd"


def _symbols(options: Namespace, subject: Subject) -> list[str]:
    """The symbols that are asked for, all where none are. Raises Mistake for one that the model does not have."""
    fixed = _fixed(options)
    for name in options.symbols:
        if name not in subject.symbols:
            raise Mistake(f"--symbols: {options.model}: {choice_error('symbol', name, subject.symbols)}")
        if (size := subject.symbols[name]) in fixed:
            raise Mistake(f"--symbols: Catamount's graph of {options.model} has {name} {fixed[size]} and no other")
    for size, value in fixed.items():
        if subject.sizes[size] != value:
            raise Mistake(f"Catamount's graph of {options.model} has {size} {value}, got {subject.sizes[size]}")
    return list(options.symbols) or [name for name, size in subject.symbols.items() if size not in fixed]


def _fixed(options: Namespace) -> Mapping[str, int]:
    """Sizes that the convention knows one value of."""
    if options.rules != CATAMOUNT:
        return {}

    return FIXED.get(options.model, {})


def _convention(options: Namespace, subject: Subject, symbols: Sequence[str]) -> tuple[Convention, list[Term]]:
    """What is counted how, and what the convention adds to this model beside its operations."""
    if options.rules != CATAMOUNT:
        return OWN, []

    names = {size: name for name, size in subject.symbols.items()}
    sizes = {**subject.sizes, BATCH: subject.batch_size}
    meanings = {size: symbol(name) if name in symbols else sizes[size] for size, name in names.items()}
    found = [Term(t.name, t.quantity, parse(t.formula, meanings), t.why) for t in terms(options.model)]
    return Convention(RULES, footprint, KEPT), found


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

FOOTPRINT_NAMES = {EAGER: "eager footprint", MINIMAL: "minimal footprint"}

UNKNOWN = "what oneDNN's LSTM keeps for its backward pass has no known size"

WITHOUT = f"No formula of bytes accessed, total footprint and bytes kept, nor of FLOP / byte: {UNKNOWN}."

OWN_RULES = "flopledger"


@dataclass(frozen=True)
class FootprintFormulas:
    """formulas: quantity → its formula. why: quantity → why it has none. notes: for a person. proven: no order needs
    less than the minimal one at the point; None: there is none. at_least: quantity without a formula, as a size is
    unknown → that of all other storages."""

    formulas: Mapping[str, Expr] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    proven: bool | None = None
    at_least: Mapping[str, Expr] = field(default_factory=dict)


def footprints(
    rules: str, derived: Derived, point: Point, sample_at: Callable[[Point], SizeSample], most: int
) -> FootprintFormulas:
    """The footprints' formulas. most: operations of a step that is looked at to check them, at most."""
    if rules != OWN_RULES:
        return FootprintFormulas(why={name: f"{rules.capitalize()} has none" for name in FOOTPRINT_NAMES})
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
    notes = [f"No formula of the {FOOTPRINT_NAMES[name]}: {reason}." for name, reason in why.items()]
    notes += [WITHOUT] * bool(derived.unsized)
    if BATCH in point and kept:
        single = {**{axis.symbol: axis.base for axis in (*derived.axes, *derived.structural)}, BATCH: 1}
        notes += [f"The eager footprint {each}." for each in _wrong(found, single, sample(single), False).values()]
    proven = found.proven if MINIMAL in kept else None
    return FootprintFormulas({name: found.formula(name) for name in kept}, why, tuple(notes), proven, at_least)


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
