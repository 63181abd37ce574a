"""Formulas of the five domains' models, read from frontier_formulas.csv, so that projecting them needs no torch.

The file is made by `python -m benchmarks.pages.frontier`, a row a quantity: exact formulas by Catamount's rules
(docs/formula.md) and by our own. A test makes one model's rows again. Nothing is fitted here.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from analysis.formula.algebra.evaluate import compiled
from analysis.formula.algebra.expressions import names, parse, unknown_name

FILE = Path(__file__).with_name("frontier_formulas.csv")

BATCH = "batch"

RULES = ("catamount", "flopledger")

AT_LEAST = "at_least_"
"""Before a quantity of the file that lacks a storage of no known size."""


@dataclass(frozen=True)
class Formulas:
    """Quantities of a model's training step (`analysis/formula/derivation/totals.py`) as expressions in its sizes and
    the batch.

    sizes: the value of each size where nobody gives another. element_bytes: of a number in the step that was counted.
    products_alone: whether all_flop is model_flop, because the other arithmetic has no formula. at_least: quantities
    that lack a storage of no known size.
    """

    model: str
    rules: str
    sizes: Mapping[str, int]
    quantities: Mapping[str, Any]
    element_bytes: int = 4
    products_alone: bool = False
    at_least: frozenset[str] = frozenset()

    def at(self, quantity: str, **point: int) -> float:
        """`exact` as a float."""
        return float(self.exact(quantity, **point))

    def exact(self, quantity: str, **point: int) -> int | Fraction:
        """A quantity's value at the sizes with these changed. Raises ValueError for a size that the model lacks."""
        known = {**self.sizes, BATCH: 1}
        for name in point:
            if name not in known:
                raise ValueError(f"{self.model}: {unknown_name('size', name, known)}")
        here = {**known, **point}
        wanted, function = _called(self.quantities[quantity])
        return function(*(here[name] for name in wanted))


@functools.cache
def shipped(rules: str = RULES[0]) -> Mapping[str, Formulas]:
    """Model → its formulas by these rules."""
    found: dict[str, dict[str, Any]] = {}
    heads: dict[str, Mapping[str, str]] = {}
    partial: dict[str, set[str]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["rules"] != rules:
                continue
            quantity = row["quantity"].removeprefix(AT_LEAST)
            found.setdefault(row["model"], {})[quantity] = row["formula"]
            partial.setdefault(row["model"], set()).update({quantity} - {row["quantity"]})
            heads[row["model"]] = row
    return {
        model: Formulas(
            model,
            heads[model]["rules"],
            json.loads(heads[model]["sizes"]),
            _Parsed(texts),
            at_least=frozenset(partial[model]),
        )
        for model, texts in found.items()
    }


@functools.lru_cache(maxsize=256)
def _called(expression: Any) -> tuple[list[str], Callable[..., int | Fraction]]:
    """Names of an expression's symbols, and it as a function of their values in that order."""
    return names(expression), compiled(expression)


class _Parsed(Mapping[str, Any]):
    """Texts that are parsed when they are asked for."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts, self._parsed = texts, dict[str, Any]()

    def __getitem__(self, quantity: str) -> Any:
        if quantity not in self._parsed:
            self._parsed[quantity] = parse(self._texts[quantity])
        return self._parsed[quantity]

    def __iter__(self) -> Any:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
