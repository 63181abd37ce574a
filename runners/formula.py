"""`python -m runners.formula MODEL`: what a training step costs, as formulas in the model's own sizes and the batch.

The formulas come from the model's own operation tables at a few points (`runners/formula_points.py`), are exact, and are
checked at points that they were not made from. They are evaluated, swept, differentiated and solved. Nothing is run on
a device, timed or downloaded.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from results.errors import Unavailable
from runners import formula_options
from runners.arguments import choice_error
from runners.exits import FAILED, Mistake, exit_code, guarded
from runners.model_options import check_models, hyper_of
from runners.progress import passing

if TYPE_CHECKING:
    from reports.formulas import Answer
    from runners.formula_points import Subject

LENGTH = "seq"
"""The symbol that --lengths is about, where it is not said."""

CHECKED_CALLS = 20_000
"""Operations of a step that is made for a check alone, at most."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: the formulas are told; 1: there are none; 2: the caller's mistake; 3: a file was not written."""
    options = formula_options.parser().parse_args(arguments)
    return guarded(lambda: _run(options), options.debug)


def _run(options: Namespace) -> int:
    check_models([options.model], options)
    from analysis.sampling import Unfitted
    from analysis.solving import NoSolution
    from runners.formula_points import NotBuilt

    try:
        answer = _answer(options)
    except (NotBuilt, Unfitted, Unavailable) as fault:
        passing("")
        print(f"error: {fault}", file=sys.stderr)
        return FAILED
    except NoSolution as fault:
        raise Mistake(f"--solve: {fault}") from fault
    passing("")
    return _tell(answer, options)


def _tell(answer: Answer, options: Namespace) -> int:
    from reports.formulas import to_text

    text = to_text(answer, options.format)
    if options.out is not None:
        from runners.files import put

        put(options.out, text)
    print(text, end="")
    return 0


def _answer(options: Namespace) -> Answer:
    """Everything that is asked of the model's formulas. Raises Mistake, NotBuilt, Unfitted or NoSolution."""
    from analysis import formula, symbolic
    from reports.formulas import Answer
    from runners import formula_questions as questions
    from runners.formula_points import axes, sampler

    subject = _subject(options)
    symbols = _symbols(options, subject)
    point = questions.point_of(options.at, symbols, subject)
    rules, terms = _rules(options, subject, symbols)
    asked = questions.Asked.of(options, symbols)  # mistakes are told before anything takes long
    looked_at = sampler(subject, lambda count: passing(f"{options.model}: {count} points"))
    derived = symbolic.formulas(looked_at, axes(subject, symbols, looked_at), rules)
    whole = formula.totals(derived, terms)
    return Answer(
        model=options.model,
        rules=options.rules,
        optimizer=subject.optimizer,
        precision=options.precision,
        symbols=tuple(symbols),
        totals=whole,
        terms=tuple(terms),
        point=point,
        checked=(*derived.checked, *_at_point(looked_at, derived, point, rules)),
        axes=(*derived.axes, *derived.structural),
        samples=derived.samples,
        not_understood=dict(derived.not_understood),
        parts=formula.parts(derived, options.by) if options.by else {},
        by=options.by or "",
        **asked.answered(whole, point),
    )


def _at_point(looked_at: Any, derived: Any, point: Mapping[str, int], rules: Any) -> tuple[Mapping[str, int], ...]:
    """The point that was asked for, where the table there is made and has the counts of the formulas: large steps and
    sizes that the model does not take are left. Raises Unfitted for other counts."""
    from analysis.fitting import value_of
    from analysis.symbolic import check
    from runners.formula_points import NotBuilt

    calls = value_of(derived.total("calls"), point)
    if calls > CHECKED_CALLS or calls.denominator != 1:
        return ()
    try:
        sample = looked_at(point)
    except NotBuilt:
        return ()
    check(derived.counts, sample, rules, merged=bool(derived.structural))
    return (point,)


def _subject(options: Namespace) -> Subject:
    """The model with its sizes. Raises Mistake where it cannot be what it says."""
    from analysis.precisions import PRECISIONS
    from runners.counted import get
    from runners.formula_points import Subject, names_of, smallest

    given = hyper_of(options)
    words = {name: value for name, value in given.items() if not isinstance(value, int)}
    try:
        workload = get(options.model, **given)
    except ValueError as fault:
        raise Mistake(str(fault)) from fault
    return Subject(
        model=options.model,
        sizes=workload.hyper,
        fixed=words,
        symbols=names_of(workload.hyper),
        batch_size=options.batch_size,
        optimizer=options.optimizer or _optimizer(options),
        autocast=PRECISIONS[options.precision].autocast,
        smallest=smallest(options.model),
    )


def _optimizer(options: Namespace) -> str:
    if options.rules == "catamount":
        from analysis.catamount import optimizer_of

        return optimizer_of(options.model)
    return "sgd"


def _symbols(options: Namespace, subject: Subject) -> list[str]:
    """The symbols that are asked for, all where none are. Raises Mistake for one that the model does not have."""
    for name in options.symbols:
        if name not in subject.symbols:
            raise Mistake(f"--symbols: {options.model}: {choice_error('symbol', name, subject.symbols)}")
    return list(options.symbols or subject.symbols)


def _rules(options: Namespace, subject: Subject, symbols: Sequence[str]) -> tuple[Any, list[Any]]:
    """The table of rules, and what the convention adds to this model beside its operations."""
    from analysis.kinds import TABLE

    if options.rules == "flopledger":
        return TABLE, []
    from analysis.catamount import RULES

    from runners.formula_points import terms

    return RULES, terms(subject, symbols)


if __name__ == "__main__":
    sys.exit(exit_code(main))
