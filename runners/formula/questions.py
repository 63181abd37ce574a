"""What is asked of a model's formulas: read before anything takes long, answered once the formulas are there."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

from analysis.devices.precisions import PRECISIONS
from analysis.formula.algebra.constraints import request
from analysis.formula.algebra.evaluate import MOST_POINTS, axes, parse_point, points, rows
from analysis.formula.algebra.expressions import Expr, rational, symbol
from analysis.formula.algebra.solve import solve
from analysis.formula.derivation.totals import QUANTITIES
from reports.formula import Solved, measure
from runners.cli.arguments import choice_error
from runners.cli.exits import Mistake
from runners.formula.points import Subject

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
    try:
        given = parse_point(text) if text else {}
    except ValueError as fault:
        raise Mistake(f"--at: {fault}") from fault
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
        return {
            "solved": tuple(self._solved(whole, point)),
            "swept": tuple(self._rows({**whole, **known}, point)) if self.sweep else (),
        }

    def _quantities(self, whole: Mapping[str, Expr]) -> dict[str, Expr]:
        known = {name: formula for name, formula in whole.items() if formula is not None}
        found = {**known, **{short: known[name] for short, name in SHORT.items() if name in known}}
        if self.rates is not None:
            from analysis.formula.derivation.totals import time_bound

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
            try:
                asked = request(text, quantities, self.symbols, measures)
            except ValueError as fault:
                raise Mistake(f"--solve: {fault}") from fault
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

    def _rows(self, whole: Mapping[str, Expr], point: Mapping[str, int]) -> list[dict[str, Any]]:
        fixed = {name: value for name, value in point.items() if name not in self.sweep}
        known = {name: formula for name, formula in whole.items() if formula is not None}
        return rows(known, points(self.sweep, fixed))


def _swept(text: str, symbols: Sequence[str]) -> Mapping[str, Sequence[int]]:
    try:
        found = axes(text) if text else {}
    except ValueError as fault:
        raise Mistake(f"--sweep: {fault}") from fault
    for name in found:
        _check("--sweep", name, symbols)
    if (count := prod(map(len, found.values()))) > MOST_POINTS:
        raise Mistake(f"--sweep: expected at most {MOST_POINTS:,} points, got {count:,}")
    return found


def _rates(device: str, precision: str) -> Any:
    from analysis.formula.derivation.totals import rates

    try:
        return rates(device, PRECISIONS[precision].matmul_unit)
    except ValueError as fault:
        raise Mistake(f"--device: {fault}") from fault
