"""A domain: what is trained, how its error falls with data, and where it is to go. Made from a TOML file's tables.

A file of ten lines is enough (five are in `analysis/project/domains/`; docs/projections.md says what each key means):

    model = "wordlm"
    grows = "hidden"
    sub_batch = 128
    learning_curve = { beta_g = -0.066 }
    model_size = { sigma = 940, beta_p = 0.68 }
    error = { now = 3.37, target = 2.48 }
    data = { now = 768e6, per_sample = 25.37 }

Any number may be `[value, low, high]`. Nothing is projected here (`analysis/project/frontier.py`).

A learning curve has three regions (Hestness et al. 2017, arXiv:1712.00409; figure 6 of Hestness, Ardalani, Diamos:
Beyond human-level accuracy, PPoPP 2019, from here on "the paper"): with little data a model guesses, then its error
falls as a power of the data, and at last it comes near what cannot be avoided:

    error(m) = min(guess, alpha · m ** beta_g + floor)         equation 1 of the paper where floor is 0
    parameters(m) = sigma · m ** beta_p                        equation 2

Errors are in the units of the task, m in its samples (words, letters, images). Not claimed: that a curve holds beyond
the data it was fitted to, nor that two tasks have the same.

Formulas of the five domains' models are read from frontier_formulas.csv, so that projecting them needs no torch. The
file is made by `python -m benchmarks.pages.frontier`, a row a quantity: exact formulas by Catamount's rules
(docs/formula.md) and by our own. A test makes one model's rows again. Nothing is fitted here.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import Any

from analysis.formula.expressions import compiled, names, parse, unknown_name

FOLDER = Path(__file__).with_name("domains")
ORDER = ("word_lm", "char_lm", "nmt", "speech", "image")

TABLES: Mapping[str, Mapping[str, str]] = {
    "learning_curve": {"alpha": "alpha", "beta_g": "beta_g", "floor": "floor", "guess": "guess"},
    "model_size": {"sigma": "sigma", "beta_p": "beta_p"},
    "error": {"now": "error_now", "target": "error_target"},
    "data": {"now": "data_now", "per_sample": "per_sample"},
}
"""Table of the file → its numbers → their names in `Domain.numbers`."""

WORDS = {"error": "error_unit", "data": "data_unit"}
"""Table → the name of its `unit`."""

RANGES = {"beta_g": (-0.5, 0.0), "beta_p": (0.5, 1.0)}
"""The exponents of a learning curve, of which 0 learns nothing, and of a model's size, of which 1 stores the data: from
the first to below the second."""

NEEDED = ("beta_g", "sigma", "beta_p", "error_target")

DEFAULTS = {"floor": 0.0, "per_sample": 1.0, "guess": math.inf}

MOST_UNCERTAIN = 6
"""Numbers with an interval, at most: the corners of their box are all looked at."""

Interval = tuple[float, float, float]
"""value, low, high."""


def error_after(samples: float, alpha: float, beta_g: float, floor: float = 0.0, guess: float = math.inf) -> float:
    """The error after training on so many samples."""
    return float(min(guess, alpha * samples**beta_g + floor))


def samples_for(error: Any, alpha: Any, beta_g: Any, floor: Any = 0.0) -> Any:
    """The samples that an error takes, above the floor and below the guess; floats or arrays."""
    return ((error - floor) / alpha) ** (1 / beta_g)


def data_scale(now: Any, target: Any, beta_g: Any, floor: Any = 0.0) -> Any:
    """How many times the data brings the error from `now` to `target`, whatever alpha is: the ratio of what is above
    the floor, to the power 1 / beta_g; floats or arrays."""
    return ((target - floor) / (now - floor)) ** (1 / beta_g)


@dataclass(frozen=True)
class Domain:
    """numbers: name → (value, low, high). sizes: of the model, each a number or a formula in the size that grows."""

    name: str
    model: str
    grows: str
    sub_batch: int
    numbers: Mapping[str, Interval]
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    error_unit: str = ""
    data_unit: str = "sample"
    source: str = ""

    def values(self) -> dict[str, float]:
        """Every number without its interval."""
        return {name: value for name, (value, _, _) in self.numbers.items()}

    def uncertain(self) -> list[str]:
        """Names of the numbers that have an interval."""
        return [name for name, (_, low, high) in self.numbers.items() if low < high]

    def corners(self) -> Iterator[dict[str, float]]:
        """The numbers at each corner of the box of their intervals."""
        names_ = self.uncertain()
        for ends in itertools.product((1, 2), repeat=len(names_)):
            yield {**self.values(), **{name: self.numbers[name][end] for name, end in zip(names_, ends, strict=True)}}

    def sizes_at(self, grown: int) -> dict[str, int]:
        """Every size that the file gives, where the one that grows has this value."""
        sizes = {self.grows: grown}
        for name, size in self.sizes.items():
            sizes[name] = size if isinstance(size, int) else int(parse(size, {self.grows: grown}))
        return sizes


def from_tables(tables: Mapping[str, Any], name: str) -> Domain:
    """The domain of a file's tables. name: where the file gives none. Raises ValueError in one line."""
    known = ("name", "model", "grows", "sub_batch", "sizes", "source", *TABLES)
    for key in tables:
        if key not in known:
            raise ValueError(unknown_name("key", key, known))
    for key in ("model", "grows"):
        if not (isinstance(tables.get(key), str) and tables[key]):
            raise ValueError(f"{key}: expected a word, got {tables.get(key, 'nothing')!r}")
    numbers = {key: number for table in TABLES for key, number in _numbers(table, tables.get(table, {}))}
    for key in NEEDED:
        if key not in numbers:
            table, inner = next((t, k) for t, keys in TABLES.items() for k, its in keys.items() if its == key)
            raise ValueError(f"{table}: expected {inner}, got none")
    domain = Domain(
        name=_text(tables, "name") or name,
        model=tables["model"],
        grows=tables["grows"],
        sub_batch=_whole("sub_batch", tables.get("sub_batch", 1)),
        numbers={**{key: (value,) * 3 for key, value in DEFAULTS.items()}, **numbers},
        sizes=_sizes(tables.get("sizes", {}), tables["grows"]),
        error_unit=_text(tables.get("error", {}), "unit"),
        data_unit=_text(tables.get("data", {}), "unit") or "sample",
        source=_text(tables, "source"),
    )
    _check(domain)
    return domain


def shipped(name: str) -> Domain:
    """One of them."""
    return from_tables(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")), name)


def _numbers(table: str, content: Any) -> Iterator[tuple[str, Interval]]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{table}: expected a table as in {{ {next(iter(TABLES[table]))} = 1.0 }}, got {content!r}")
    valid = (*TABLES[table], *(("unit",) if table in WORDS else ()))
    for key, value in content.items():
        if key not in valid:
            raise ValueError(unknown_name(f"key of {table}", key, valid))
        if key != "unit":
            yield TABLES[table][key], _interval(f"{table}.{key}", value)


def _interval(key: str, value: Any) -> Interval:
    several = value if isinstance(value, list) else [value] * 3
    plain = all(isinstance(end, int | float) and not isinstance(end, bool) for end in several)
    if not (plain and len(several) == 3 and all(math.isfinite(end) for end in several)):
        raise ValueError(f"{key}: expected a number or [value, low, high], got {value!r}")
    middle, low, high = map(float, several)
    if not low <= middle <= high:
        raise ValueError(f"{key}: expected [value, low, high] with the value between, got {value!r}")
    return middle, low, high


def _sizes(content: Any, grows: str) -> dict[str, int | str]:
    if not isinstance(content, Mapping):
        raise ValueError(f"sizes: expected a table as in {{ vocab = 10004 }}, got {content!r}")
    for name, size in content.items():
        if isinstance(size, str):
            if set(names(parse(size))) - {grows}:
                raise ValueError(f"sizes.{name}: expected a formula in {grows}, got {size!r}")
        else:
            _whole(f"sizes.{name}", size)
        if name == grows:
            raise ValueError(f"sizes.{name}: expected sizes that do not grow, this one does")
    return dict(content)


def _whole(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key}: expected a whole number of at least 1, got {value!r}")
    return value


def _text(table: Any, key: str) -> str:
    value = table.get(key, "") if isinstance(table, Mapping) else ""
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected words, got {value!r}")
    return value


def _check(domain: Domain) -> None:
    """Everything that the numbers must keep, at every corner of their intervals."""
    if not ("error_now" in domain.numbers and "data_now" in domain.numbers) and "alpha" not in domain.numbers:
        raise ValueError(
            "expected error.now and data.now, or learning_curve.alpha: one says how much data a target takes"
        )
    if len(domain.uncertain()) > MOST_UNCERTAIN:
        raise ValueError(f"expected at most {MOST_UNCERTAIN} numbers with an interval, got {len(domain.uncertain())}")
    for key in ("sigma", "alpha", "error_now", "error_target", "data_now", "per_sample"):
        if key in domain.numbers and not domain.numbers[key][1] > 0:
            raise ValueError(f"{key}: expected a number above 0, got {domain.numbers[key][1]:g}")
    for key, (least, beyond) in RANGES.items():
        for number in domain.numbers[key][1:]:
            if not least <= number < beyond:
                raise ValueError(f"{key}: expected {least} to below {beyond:g}, got {number:g}")
    floor, guess = domain.numbers["floor"], domain.numbers["guess"]
    if not 0 <= floor[1] <= floor[2] < guess[1]:
        raise ValueError(f"expected a floor from 0 to below the guess of {guess[1]:g}, got {floor[0]:g}")
    for key in ("target", "now"):
        error = domain.numbers.get(f"error_{key}", (math.inf,) * 3)
        if error[1] <= floor[2]:
            words = f"expected more than {floor[2]:g}, the irreducible error, got {error[1]:g}"
            raise ValueError(f"error.{key}: {words}: no data reaches it")
    if domain.numbers["error_target"][2] > guess[1]:
        raise ValueError(f"error.target: expected at most {guess[1]:g}, the best guess")


FILE = Path(__file__).with_name("frontier_formulas.csv")

BATCH = "batch"

RULES = ("catamount", "flopledger")

AT_LEAST = "at_least_"
"""Before a quantity of the file that lacks a storage of no known size."""


@dataclass(frozen=True)
class Formulas:
    """Quantities of a model's training step (`analysis/formula/derive.py`) as expressions in its sizes and
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
        wanted, function = compiled(self.quantities[quantity])
        return function(*(here[name] for name in wanted))


@functools.cache
def shipped_formulas(rules: str = RULES[0]) -> Mapping[str, Formulas]:
    """Model → its formulas by these rules."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["rules"] == rules]
    shipped = {}
    for model, of_model in itertools.groupby(rows, itemgetter("model")):
        texts = {row["quantity"]: row for row in of_model}
        shipped[model] = Formulas(
            model,
            rules,
            json.loads(next(iter(texts.values()))["sizes"]),
            {name.removeprefix(AT_LEAST): parse(row["formula"]) for name, row in texts.items()},
            at_least=frozenset(name.removeprefix(AT_LEAST) for name in texts if name.startswith(AT_LEAST)),
        )
    return shipped
