"""Reads a domain from a TOML file: what is trained, how its error falls with data, and the target error.

docs/projections.md explains each key; examples are in `analysis/project/domains/`. `from_tables` takes the file's
tables and returns a `Domain`. Any number may be `[value, low, high]`. A learning curve has three regions (Hestness et
al. 2017, arXiv:1712.00409; PPoPP 2019, "the paper"). Its error(m) = min(guess, alpha · m ** beta_g + floor) is equation
1 where floor is 0. Equation 2 is parameters(m) = sigma · m ** beta_p. Errors are in the task's unit, m in its samples.
`shipped_formulas` reads the models' formulas from frontier_formulas.csv (made by `python -m
benchmarks.pages.frontier`), so that no torch is needed. Not claimed: that a curve holds beyond the data it was fitted
to.
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
"""Table of the file → its keys → their names in `Domain.numbers`."""

UNIT_NAMES = {"error": "error_unit", "data": "data_unit"}
"""Table → name of its `unit` in `Domain`."""

RANGES = {"beta_g": (-0.5, 0.0), "beta_p": (0.5, 1.0)}
"""Half-open ranges of exponents. A learning curve with beta_g = 0 learns nothing; a model whose size grows with
beta_p = 1 stores the data."""

NEEDED = ("beta_g", "sigma", "beta_p", "error_target")

DEFAULTS = {"floor": 0.0, "per_sample": 1.0, "guess": math.inf}

MOST_UNCERTAIN = 6
"""Maximum number of values with an interval: every corner of their box is evaluated."""

Interval = tuple[float, float, float]
"""value, low, high."""


def error_after(samples: float, alpha: float, beta_g: float, floor: float = 0.0, guess: float = math.inf) -> float:
    """Return the error after training on this many samples."""
    return float(min(guess, alpha * samples**beta_g + floor))


def samples_for(error: Any, alpha: Any, beta_g: Any, floor: Any = 0.0) -> Any:
    """Return the samples needed for an error between floor and guess; floats or arrays."""
    return ((error - floor) / alpha) ** (1 / beta_g)


def data_scale(now: Any, target: Any, beta_g: Any, floor: Any = 0.0) -> Any:
    """Return the factor by which the data must grow to bring the error from `now` to `target`, for any alpha: the ratio
    of the errors above the floor, to the power 1 / beta_g; floats or arrays."""
    return ((target - floor) / (now - floor)) ** (1 / beta_g)


@dataclass(frozen=True)
class Domain:
    """What is trained, and to which error. numbers: name → (value, low, high). grows: the model's size that grows with
    data. sizes: the other sizes, each a number or a formula in the growing size."""

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
        """Return every number without its interval."""
        return {name: value for name, (value, _, _) in self.numbers.items()}

    def uncertain(self) -> list[str]:
        """Return the names of the numbers that have an interval."""
        return [name for name, (_, low, high) in self.numbers.items() if low < high]

    def corners(self) -> Iterator[dict[str, float]]:
        """Yield the numbers at each corner of the box of their intervals."""
        names_ = self.uncertain()
        for ends in itertools.product((1, 2), repeat=len(names_)):
            yield {**self.values(), **{name: self.numbers[name][end] for name, end in zip(names_, ends, strict=True)}}

    def sizes_at(self, grown: int) -> dict[str, int]:
        """Return all sizes of the file, where the growing one has this value."""
        sizes = {self.grows: grown}
        for name, size in self.sizes.items():
            sizes[name] = size if isinstance(size, int) else int(parse(size, {self.grows: grown}))
        return sizes


def from_tables(tables: Mapping[str, Any], name: str) -> Domain:
    """Return the domain of a file's tables. name: used where the file has none. Raises ValueError in one line."""
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
    """Return a shipped domain by name."""
    return from_tables(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")), name)


def _numbers(table: str, content: Any) -> Iterator[tuple[str, Interval]]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{table}: expected a table as in {{ {next(iter(TABLES[table]))} = 1.0 }}, got {content!r}")
    valid = (*TABLES[table], *(("unit",) if table in UNIT_NAMES else ()))
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
            raise ValueError(f"sizes.{name}: expected sizes besides the growing one, got {grows}")
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
    """Raise ValueError for numbers that are impossible within their intervals."""
    if not ("error_now" in domain.numbers and "data_now" in domain.numbers) and "alpha" not in domain.numbers:
        raise ValueError(
            "expected error.now and data.now, or learning_curve.alpha, which give the data for a target; got neither"
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
            message = f"expected more than {floor[2]:g}, the irreducible error, got {error[1]:g}"
            raise ValueError(f"error.{key}: {message}: no data reaches it")
    if domain.numbers["error_target"][2] > guess[1]:
        raise ValueError(
            f"error.target: expected at most {guess[1]:g}, the best guess, got {domain.numbers['error_target'][2]:g}"
        )


FILE = Path(__file__).with_name("frontier_formulas.csv")

BATCH = "batch"

RULES = ("catamount", "flopledger")

AT_LEAST = "at_least_"
"""Prefix of a quantity in the file that lacks a storage of unknown size."""


@dataclass(frozen=True)
class Formulas:
    """Quantities of a model's training step (`analysis/formula/derive.py`) as expressions in its sizes and the batch.

    sizes: default values. element_bytes: of a number in the step that was counted. products_only: whether all_flop is
    model_flop, because the other arithmetic has no formula. at_least: quantities that lack a storage of unknown size.
    """

    model: str
    rules: str
    sizes: Mapping[str, int]
    quantities: Mapping[str, Any]
    element_bytes: int = 4
    products_only: bool = False
    at_least: frozenset[str] = frozenset()

    def value(self, quantity: str, **point: int) -> float:
        """Return `exact` as a float."""
        return float(self.exact(quantity, **point))

    def exact(self, quantity: str, **point: int) -> int | Fraction:
        """Return a quantity's value, with these sizes changed. Raises ValueError for a size that the model lacks."""
        known = {**self.sizes, BATCH: 1}
        for name in point:
            if name not in known:
                raise ValueError(f"{self.model}: {unknown_name('size', name, known)}")
        here = {**known, **point}
        wanted, function = compiled(self.quantities[quantity])
        return function(*(here[name] for name in wanted))


@functools.cache
def shipped_formulas(rules: str = RULES[0]) -> Mapping[str, Formulas]:
    """Return model → its formulas by these rules."""
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
