"""Writes the formulas of a model's costs as a table (`parts`), as CSV (`to_csv`) and as JSON (`document`).

Each function takes a `FormulaAnswer`: parameters, FLOP, bytes and footprint of a training step as formulas in the
model's sizes. The functions compute only values at points. The table shows the shortest form of a formula, wrapped, and
cut after its first lines. JSON and CSV have the whole formula, as text that sympy reads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from analysis.catamount.graph_terms import Term
from analysis.formula.derive import OF_ATTENTION, PART, QUANTITIES
from analysis.formula.expressions import Point, plain, pretty, shortest, value
from analysis.formula.interpolate import point_text
from analysis.formula.requests import amount
from analysis.formula.sampling import Axis
from analysis.formula.solve import Solution
from reports.shared.layout import Part, Prose, TableColumn, TextTable, csv_text, strong

MOST_LINES = 4
"""Maximum number of lines of one formula in the table."""

Expr = Any


@dataclass(frozen=True)
class FormulaAnswer:
    """The whole answer on one model's formulas.

    point: sizes at which values are shown. checked: points at which formulas were compared with counts. minimal_proven:
    whether no order needs less than the minimal footprint at the point. at_least: quantity → formula of the operations
    that have a rule, where others have none, so that there is no total.
    """

    model: str
    rules: str
    optimizer: str
    precision: str
    symbols: tuple[str, ...]
    totals: Mapping[str, Expr]
    terms: tuple[Term, ...]
    point: Point
    checked: tuple[Point, ...]
    axes: tuple[Axis, ...]
    samples: int
    not_understood: Mapping[str, int]
    parts: Mapping[str, Mapping[str, Expr]]
    by: str
    solved: tuple[Solution, ...] = ()
    swept: tuple[Mapping[str, int | Fraction], ...] = ()
    notes: tuple[str, ...] = ()
    minimal_proven: bool | None = None
    at_least: Mapping[str, Expr] = field(default_factory=dict)


# --- JSON and CSV ----------------------------------------------------------------------------------------------------


def document(answer: FormulaAnswer) -> dict[str, Any]:
    """Return the answer as a JSON document: every formula as text that sympy parses, unknown as null."""
    formulas = {name: _plain(answer.totals[name]) for name in QUANTITIES}
    return {
        "model": answer.model,
        "rules": answer.rules,
        "optimizer": answer.optimizer,
        "precision": answer.precision,
        "symbols": list(answer.symbols),
        **formulas,
        "at": dict(answer.point),
        "values": {name: _number(_at(answer.totals[name], answer.point)) for name in QUANTITIES},
        "at_least": {name: plain(formula) for name, formula in answer.at_least.items()},
        "at_least_values": {name: _number(_at(formula, answer.point)) for name, formula in answer.at_least.items()},
        "unknown_calls": sum(answer.not_understood.values()),
        "unknown_time_ratio": None,
        "minimal_footprint_proven": answer.minimal_proven,
        "by": answer.by or None,
        "parts": [
            {answer.by: part, **{name: _plain(costs[name]) for name in PART}} for part, costs in answer.parts.items()
        ],
        "terms": [
            {"name": t.name, "quantity": t.quantity, "formula": plain(t.expression), "why": t.why} for t in answer.terms
        ],
        "holds_for": [{"symbol": axis.symbol, "from": axis.base, "step": axis.step} for axis in answer.axes],
        "checked_at": [dict(point) for point in answer.checked],
        "not_understood": dict(answer.not_understood),
        "notes": list(answer.notes),
        "solutions": [
            {
                "asked": solved.request.text,
                "symbol": solved.request.unknown,
                "value": solved.value,
                "end": solved.end,
                "left": _number(solved.left),
                "right": _number(solved.right),
                "proof": solved.why(),
                "formula": _plain(solved.formula),
            }
            for solved in answer.solved
        ],
        "sweep": [{name: _number(cell) for name, cell in row.items()} for row in answer.swept],
    }


def to_csv(answer: FormulaAnswer) -> str:
    """Return the sweep if one is requested; else a row for each quantity, or part and quantity."""
    if answer.swept:
        return csv_text(list(answer.swept[0]), (map(_number, row.values()) for row in answer.swept))
    rows = [("", name, answer.totals[name]) for name in QUANTITIES]
    rows += [(part, name, costs[name]) for part, costs in answer.parts.items() for name in PART]
    rows += [("", f"at_least_{name}", formula) for name, formula in answer.at_least.items()]
    values = ((part, name, _plain(formula), _number(_at(formula, answer.point))) for part, name, formula in rows)
    return csv_text((answer.by or "part", "quantity", "formula", "value"), values)


def _number(number: int | Fraction | None) -> int | float | None:
    """Return a whole number as an int, a fraction as the nearest float."""
    return number if number is None or isinstance(number, int) else float(number)


def _plain(formula: Expr | None) -> str | None:
    return None if formula is None else plain(formula)


def _at(formula: Expr | None, point: Point) -> int | Fraction | None:
    return None if formula is None else value(formula, point, point)


# --- table -----------------------------------------------------------------------------------------------------------


def parts(answer: FormulaAnswer) -> Iterator[Part]:
    """Yield the page."""
    rules = "" if answer.rules == "flopledger" else f", by the rules of {answer.rules.capitalize()}"
    yield strong(
        f"{answer.model}: a training step with {answer.optimizer} in {answer.precision}{rules}, as formulas in "
        f"{', '.join(answer.symbols)}; values at {point_text(answer.point)}."
    )
    yield ""
    for name, label in QUANTITIES.items():
        if name in OF_ATTENTION and answer.totals[name] == answer.totals["model_flop"]:
            continue  # no attention, or none with a mask
        is_partial = name in answer.at_least
        formula = answer.at_least[name] if is_partial else answer.totals[name]
        yield from _formula(f"{label}, at least" if is_partial else label, formula, answer.point, name)
    for part, costs in answer.parts.items():
        yield from ("", f"{answer.by} {part}")
        for name in ("model_flop", "all_flop", "bytes_accessed", "operational_intensity"):
            if costs[name] is None or costs[name] != 0:
                yield from _formula(QUANTITIES[name], costs[name], answer.point, name)
    yield ""
    if answer.minimal_proven is not None:
        known = "no order needs less there" if answer.minimal_proven else "an order may need less there"
        yield Prose(f"minimal footprint: by the order found at the values' point; {known}", rest="    ")
    for section in (_solutions, _sweep):
        yield from ("", *section(answer))
    yield from ("", Prose(_validity_text(answer), rest=""))


def _formula(label: str, formula: Expr, point: Point, name: str) -> Iterator[Part]:
    """Yield a quantity, its value at the point, and its formula below it."""
    columns = (TableColumn("", right=False, wraps=True), TableColumn("", right=True))
    yield TextTable(columns, [[f"{label:24}", f"{_amount(_at(formula, point), name):>24}"]], heads=False)
    if getattr(formula, "free_symbols", None):
        text = "FLOP ÷ bytes of the above" if name == "operational_intensity" else pretty(shortest(formula))
        yield Prose(text, first="    ", rest="    ", most=MOST_LINES, whole="; --format json has all")


_MEASURES = {"operational_intensity": "FLOP/B", "parameters": "", "calls": ""}


def measure(name: str) -> str:
    """Return a quantity's unit: B, FLOP, FLOP/B or nothing."""
    return _MEASURES.get(name, "B" if "bytes" in name else "FLOP")


def _amount(number: int | Fraction | None, name: str) -> str:
    if number is None:
        return "–"
    if isinstance(number, int):
        return f"{number:,}"
    return amount(number, measure(name))


def _solutions(answer: FormulaAnswer) -> Iterator[Part]:
    for solved in answer.solved:
        request = solved.request
        solution = f"{request.text}: {request.unknown} = {solved.value:,}, the {solved.end}"
        sides = f"{amount(solved.left, request.measure)} against {amount(solved.right, request.measure)}"
        yield Prose(f"{solution} ({sides}); {solved.why()}", rest="    ")
        if solved.formula is not None and getattr(solved.formula, "free_symbols", None):
            yield Prose(f"equal where {request.unknown} = {pretty(solved.formula)}", first="    ", rest="        ")


def _sweep(answer: FormulaAnswer) -> Iterator[Part]:
    """Yield the swept points with the quantities for which a page has room."""
    shown = [*answer.symbols, "model_flop", "bytes_accessed", "total_footprint_bytes", "parameters"]
    rows = [[_amount(row[name], "") if name in row else "–" for name in shown] for row in answer.swept]
    first = len(answer.symbols)
    columns = [TableColumn(name, right=True, rank=max(0, index - first)) for index, name in enumerate(shown)]
    yield TextTable(columns, rows, rule=False)


def _validity_text(answer: FormulaAnswer) -> str:
    """Return where the formulas hold and how that is known."""
    holds = ", ".join(map(_domain, answer.axes))
    checked_at = "; ".join(point_text(point) for point in answer.checked[-3:])
    sentences = [
        f"Exact: fitted to the counts at {answer.samples} points, and equal to them at {len(answer.checked)} more "
        f"({checked_at}). For {holds}."
    ]
    sentences += answer.notes
    if answer.terms:
        sentences.append(f"{len(answer.terms)} terms of the convention are in the totals: --format json names them.")
    if answer.not_understood:
        names = ", ".join(answer.not_understood)
        sentences.append(f"No rule counts {names}: FLOP are at least those of the other operations.")
    return " ".join(sentences)


def _domain(axis: Axis) -> str:
    if axis.step == 1:
        return f"{axis.symbol} ≥ {axis.base}"
    rest = axis.base % axis.step
    return f"{axis.symbol} ≥ {axis.base}, " + (f"{rest} more than " if rest else "") + f"a multiple of {axis.step}"
