"""docs/catamount.md: what the mode is, and for each model what is published, what is ours, and each term between.

Text and tables only; the numbers come in as arguments, from traces that `benchmarks/pages/catamount.py` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from analysis.catamount import FIXED, QUANTITIES, Term, terms
from reports.shared import markdown, markdown_table

Numbers = tuple[int, ...]
"""parameters, FLOP, bytes, total footprint."""


@dataclass(frozen=True)
class CatamountModel:
    """A model at its base sizes, `batch` among them. rules: what the table of rules gives for a step of PyTorch;
    published: what Catamount's tests assert."""

    name: str
    sizes: Mapping[str, int]
    optimizer: str
    rules: Numbers
    published: Numbers


TITLES = dict(zip(QUANTITIES, ("parameters", "FLOP", "bytes", "total footprint"), strict=True))


def page(models: list[CatamountModel]) -> str:
    """The whole document."""
    sections = "\n".join(section(model) for model in models).rstrip("\n")
    return markdown("catamount", overview=overview(models), sections=sections)


def overview(models: list[CatamountModel]) -> str:
    """One row for each model and quantity: published, rules, terms, what is left."""
    rows = []
    for model in models:
        added = sums(model)
        for place, quantity in enumerate(QUANTITIES):
            published, own = model.published[place], model.rules[place]
            left = published - own - added[quantity]
            numbers = (f"{number:,}" for number in (published, own, added[quantity]))
            rows.append((model.name, TITLES[quantity], *numbers, _share(left, published)))
    return markdown_table(("model", "quantity", "published", "rules", "terms", "not explained"), rows, "--rrrr")


def section(model: CatamountModel) -> str:
    """A model's terms: formula, value at base sizes, and why."""
    sizes = ", ".join(f"{name} {size:,}" for name, size in model.sizes.items())
    lines = [f"## {model.name}", "", f"At {sizes}; optimizer `{model.optimizer}`.{_fixed(model.name)}", ""]
    for name in dict.fromkeys(term.name for term in terms(model.name)):
        own = [term for term in terms(model.name) if term.name == name]
        rows = [(TITLES[t.quantity], f"`{t.formula}`", f"{value(t, model.sizes):,}") for t in own]
        table = markdown_table(("quantity", "formula", "value"), rows, "--r")
        lines += [f"**{name}**: {own[0].why}.", "", table, ""]
    return "\n".join(lines)


def value(term: Term, sizes: Mapping[str, int]) -> int:
    """A term at these sizes."""
    formula = sympy.sympify(term.formula)
    return int(formula.subs({symbol: sizes[symbol.name] for symbol in formula.free_symbols}))


def sums(model: CatamountModel) -> dict[str, int]:
    """Quantity → the sum of the terms."""
    found = dict.fromkeys(QUANTITIES, 0)
    for term in terms(model.name):
        found[term.quantity] += value(term, model.sizes)
    return found


def _fixed(name: str) -> str:
    fixed = " and ".join(f"{size} {what}" for what, size in FIXED.get(name, {}).items())
    return f" Its terms hold for {fixed}." if fixed else ""


def _share(left: int, published: int) -> str:
    return "0" if left == 0 else f"{left:,} ({left / published:+.2%})"
