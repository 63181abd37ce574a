"""`python -m runners.formula MODEL`: what a training step costs, as formulas in the model's own sizes and the batch.

The formulas come from the model's own operation tables at a few points (`runners/formula/points.py`), are exact, and
are checked at points that they were not made from. They are evaluated, swept and solved. Nothing is run
on a device, timed or downloaded.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from results.errors import Unavailable
from runners.cli.arguments import Parser, add_format, choice_error, names, precision
from runners.cli.exits import FAILED, Mistake, guarded, instructed
from runners.cli.model_options import MODEL, WORDS, add_model, check_models, hyper_of
from runners.cli.output import say, show_answer
from runners.cli.progress import passing
from workloads.catalogue.catalogue import OPTIMIZERS, OWN

if TYPE_CHECKING:
    from analysis.formula.derivation.derive import Derived
    from analysis.formula.derivation.symbolic_table import Convention
    from analysis.formula.derivation.totals import Term
    from reports.formula import FormulaAnswer
    from runners.formula.points import Subject


RULES = ("flopledger", "catamount")
BY = ("phase", "kind", "module", "operation")

BATCH_SIZE = 32
"""Batch size of the values where none is said."""

EPILOG = (
    "Symbols are the batch and the sizes that a model is built from: docs/formula.md. Models of any form, and their "
    "inputs: docs/models.md. What the rules of Catamount are: docs/projections.md."
)


def parser() -> Parser:
    """The parser of `runners.formula`."""
    made = Parser(
        prog="python -m runners.formula",
        description="What does this model cost, as a formula in its hyper-parameters?",
        epilog=EPILOG,
    )
    made.add_argument("model", metavar="MODEL", help=MODEL)
    add_model(made.add_argument_group("the model, and values of sizes that are not symbols"))
    group = made.add_argument_group("the formulas")
    group.add_argument(
        "--symbols", type=names("symbol"), default=(), metavar="NAMES", help="batch,image,classes,width, … (all)"
    )
    group.add_argument("--rules", choices=RULES, default=RULES[0], help="counting rules (flopledger)")
    group.add_argument(
        "--optimizer", choices=(*OPTIMIZERS, OWN), help="of the step (sgd; of Catamount's models its own)"
    )
    group.add_argument(
        "--fused", action="store_true", help="count each chain of pointwise operations as one fused operation"
    )
    group.add_argument("--precision", type=precision, choices=PRECISIONS, default="fp32", help="of the step (fp32)")
    _add_questions(made.add_argument_group("what to do with them"))
    made.set_defaults(batch_size=BATCH_SIZE)
    add_format(made, "table, csv or json (table)")
    made.add_argument("--out", type=Path, metavar="FILE", help="write to this file, too")
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def _add_questions(group: Parser | object) -> None:
    add = group.add_argument  # type: ignore[union-attr]
    add("--at", default="", metavar="NAME=N,…", help="sizes at which values are shown (the model's own)")
    add("--by", choices=BY, help="also costs by phase, kind, module or operation")
    add(
        "--solve",
        action="append",
        default=[],
        metavar="TEXT",
        help="such as 'kept <= 32 GiB for batch'; may be repeated",
    )
    add("--sweep", default="", metavar="NAME=A:B:STEP,…", help="values over ranges, one row for each point")
    add("--device", default="", metavar="NAME", help="a row of the table of peaks, for time and ridge in --solve")


BATCH, CATAMOUNT = "batch", "catamount"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: formulas printed; 1: there are none; 2: the caller's mistake; 3: a file was not written."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options), options.debug)


def _run(options: Namespace) -> int:
    check_models([options.model], options)
    if options.out is not None:
        from runners.cli.output import reserve

        reserve(options.out)
    from analysis.formula.algebra.solve import NoSolution
    from analysis.formula.derivation.sampling import Unfitted
    from results.garbage_collector import collector_off
    from runners.formula.points import NotBuilt

    try:
        with collector_off():
            found = answer(options)
    except (NotBuilt, Unfitted, Unavailable) as fault:
        if str(fault.__cause__).startswith("--"):
            raise Mistake(str(fault.__cause__)) from fault
        passing("")
        say(f"error: {instructed(str(fault))}")
        return FAILED
    except NoSolution as fault:
        raise Mistake(f"--solve: {fault}") from fault
    passing("")
    from reports.formula import document, parts, to_csv
    from reports.shared.layout import page

    show_answer(
        options.format,
        lambda width, colour: page(parts(found), width, colour),
        lambda: document(found),
        lambda: to_csv(found),
        options.out,
    )
    return 0


def answer(options: Namespace) -> FormulaAnswer:
    """Everything that is asked of the model's formulas. Raises Mistake, NotBuilt, Unfitted or NoSolution."""
    from analysis.formula.derivation import totals
    from analysis.formula.derivation.sampling import Restructured, Unfitted
    from reports.formula import FormulaAnswer
    from runners.formula import questions
    from runners.formula.points import sampler
    from runners.formula.validity import CHECKED_CALLS, branched, checked_apart, footprints

    if options.fused and options.rules == CATAMOUNT:
        raise Mistake("--fused: Catamount's rules are of operations by themselves; leave one of the two out")
    subject = _subject(options)
    symbols = _symbols(options, subject)
    point = questions.point_of(options.at, symbols, subject)
    convention, terms = _convention(options, subject, symbols)
    asked = questions.Questions.of(options, symbols)  # mistakes are reported before anything takes long
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
        pieces=peaks.pieces,
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
    from runners.formula.points import FixedSymbol

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
    from analysis.formula.derivation import derive
    from analysis.formula.derivation.sampling import Restructured, Unfitted
    from runners.formula.points import NotBuilt, axes, fixed_symbol
    from runners.formula.validity import branched, repeated

    where = axes(subject, symbols, looked_at)
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
    from analysis.formula.derivation.totals import FLOP, SIZED
    from runners.formula.validity import UNKNOWN

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
    from analysis.formula.algebra.expressions import names

    seen = set().union(*(names(formula) for formula in whole.values() if formula is not None))
    idle = [name for name in symbols if name not in seen]
    return (f"{' and '.join(idle)} {'change' if len(idle) > 1 else 'changes'} nothing of these.",) if idle else ()


def _subject(options: Namespace) -> Subject:
    """The model with its sizes. Raises Mistake where it cannot be what it says."""
    from runners.formula.points import Subject, limits, names_of, smallest
    from runners.workers.any_model import get

    given = hyper_of(options)
    words = {name: value for name, value in given.items() if not isinstance(value, int)}
    try:
        workload = get(options.model, **given)
    except ValueError as fault:
        raise Mistake(str(fault)) from fault
    sizes = {name: value for name, value in workload.hyper.items() if name not in WORDS}
    return Subject(
        model=options.model,
        sizes=sizes,
        fixed=words,
        symbols=names_of(sizes),
        batch_size=options.batch_size,
        optimizer=options.optimizer or _optimizer(options),
        autocast=PRECISIONS[options.precision].autocast,
        smallest=smallest(options.model),
        limits=limits(options.model),
        kept={name: value for name, value in workload.hyper.items() if name in WORDS},
        fused=options.fused,
    )


def _optimizer(options: Namespace) -> str:
    if options.rules == CATAMOUNT:
        from analysis.catamount.rules import optimizer_of

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
    from analysis.catamount.graph_terms import FIXED

    return FIXED.get(options.model, {})


def _convention(options: Namespace, subject: Subject, symbols: Sequence[str]) -> tuple[Convention, list[Term]]:
    """What is counted how, and what the convention adds to this model beside its operations."""
    from analysis.formula.derivation.symbolic_table import OWN, Convention

    if options.rules != CATAMOUNT:
        return OWN, []
    from analysis.catamount.graph_terms import terms
    from analysis.catamount.rules import KEPT, RULES, footprint
    from analysis.formula.algebra.expressions import parse, symbol
    from analysis.formula.derivation.totals import Term

    names = {size: name for name, size in subject.symbols.items()}
    sizes = {**subject.sizes, BATCH: subject.batch_size}
    meanings = {size: symbol(name) if name in symbols else sizes[size] for size, name in names.items()}
    found = [Term(t.name, t.quantity, parse(t.formula, meanings), t.why) for t in terms(options.model)]
    return Convention(RULES, footprint, KEPT), found
