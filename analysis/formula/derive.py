"""Derives the costs of a step as exact sympy expressions, from operation tables traced at a few points.

A point has a value for each symbol (batch, width, layers, …). `formulas` takes a `Sampler`, which traces the table at a
point, and the symbols' axes. It returns `Derived`: each count by phase, kind, module and operation, as a polynomial in
the symbols and their rounded quotients. Some symbols only change sizes: the rules of `analysis/operators/registry.py`
(or another table) then count on symbolic sizes. For symbols that change the operations (layers, an unrolled loop), such
counts are interpolated exactly. At points that were not fitted to, the results must equal the counts, or `Unfitted` is
raised. `totals` and `parts` return expressions, or None where there is no formula: `unknown` says why, `at_least` what
is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import sympy

from analysis.catamount.graph_terms import Term
from analysis.footprint.live_bytes import unsized
from analysis.formula.interpolate import Fitter, Form, Point, interpolated, plus, value_of
from analysis.formula.sampling import Axis, CountKey, Sampler, Sizes, SizeSample, Unfitted, count_key, sample_sizes
from analysis.formula.symbolic_table import FOOTPRINT, LESS, OWN, UNKNOWN, Convention, Counts, Key, counts_of
from analysis.operators import registry
from analysis.operators.attention_conventions import BY_RULE

Expr = Any

STRUCTURE_POINTS = 2
"""Number of initial points along a symbol that changes the operations, besides its base."""

STRUCTURE_LONGEST = 12
"""Maximum number of further points for these symbols together."""

STRUCTURE_DEGREE = 3
"""Largest degree of a count in one symbol that changes the operations."""

SAVED_ROLES = ("weight", "buffer", "optimizer_state", "input", "activation")
"""Roles of storages that are alive when the backward pass begins."""

QUANTITIES = {
    "parameters": "parameters",
    "model_flop": "model FLOP",
    "causal_flop": "model FLOP, causal",
    "mask_exact_flop": "model FLOP, mask-exact",
    "all_flop": "all FLOP",
    "bytes_accessed": "bytes accessed",
    "operational_intensity": "FLOP / byte",
    "total_footprint_bytes": "total footprint, bytes",
    "kept_bytes": "kept for backward, bytes",
    "eager_footprint_bytes": "eager footprint, bytes",
    "minimal_footprint_bytes": "minimal footprint, bytes",
    "io_bytes": "input and output, bytes",
}
"""Name → its heading in a table (docs/formula.md explains each)."""

COSTS = ("model_flop", "all_flop", "bytes_accessed", "made_bytes", "calls")
"""Quantities of each phase, kind, module and operation. made_bytes: of the storages that it makes."""

FLOP = ("model_flop", "all_flop")

OF_ATTENTION = {f"{name}_flop": name for name in BY_RULE}
"""Quantity → convention of attention; all others count attention dense (docs/conventions.md)."""

SIZED = ("bytes_accessed", "total_footprint_bytes", "kept_bytes")
"""Quantities that are unknown if a storage that a step keeps for its backward pass has an unknown size."""

UNSIZED = "what oneDNN's LSTM keeps for its backward pass has no known size"

PART = (*COSTS, "operational_intensity")
"""Quantities of a part: its costs, and all FLOP ÷ bytes accessed."""

BY: Mapping[str, Callable[[CountKey], str]] = {
    "phase": lambda key: key.phase,
    "kind": lambda key: key.kind or "not understood",
    "module": lambda key: key.module or "(the model itself)",
    "operation": lambda key: f"{key.module or '(the model itself)'} {key.name} ({key.phase})",
}

_PARTS = {
    "all_flop": ("model_flop", "other_flop"),
    "bytes_accessed": ("read_bytes", "written_bytes"),
}

_OF_TERMS = {
    "parameters": "parameters",
    "flop": "all_flop",
    "bytes": "bytes_accessed",
    "footprint": "total_footprint_bytes",
}
"""Quantity of a term → of the whole step."""


@dataclass(frozen=True)
class Derived:
    """Formulas of a step. counts: those that are not 0. checked: points that were not fitted to and have equal counts.
    axes: of the symbols that only change sizes; structural: of the symbols that change operations. unsupported:
    operation without a rule → calls. without: keys whose `OPEN` quantity has no form, though all sizes have one.
    levels: the tables with symbolic sizes, each with its values of the structural symbols; the last was only used for
    verification. unsized: keys of the operations that read or write a storage of unknown size."""

    counts: Counts
    axes: tuple[Axis, ...]
    structural: tuple[Axis, ...]
    checked: tuple[Point, ...]
    samples: int
    unsupported: Mapping[str, int]
    without: frozenset[Key] = frozenset()
    levels: tuple[tuple[Point, Sizes], ...] = ()
    unsized: frozenset[CountKey] = frozenset()

    def total(self, quantity: str, keep: Callable[[Any], bool] = lambda _key: True) -> Form:
        """Return the sum of a quantity over the selected keys."""
        return plus(form for (key, of), form in self.counts.items() if of == quantity and keep(key))

    def cost(self, name: str, keep: Callable[[Any], bool]) -> Expr:
        """Return the expression of a cost, over the selected operations."""
        return expression(plus(self.total(part, keep) for part in _PARTS.get(name, (name,))))


class Level(NamedTuple):
    """Counts at one point of the structural symbols, as forms in the others, and where they were checked."""

    fixed: Point
    sizes: Sizes
    counts: Counts
    checked: tuple[Point, ...]


def formulas(sample_at: Sampler, axes: Sequence[Axis], convention: Convention = OWN) -> Derived:
    """Derive the formulas of a step in the symbols of all axes. Raises Unfitted where they have no known form."""
    cached_sample = cache(lambda point: sample_at(dict(point)))

    def sampled(point: Point) -> SizeSample:
        return cached_sample(tuple(sorted(point.items())))

    base = {axis.symbol: axis.base for axis in axes}
    first = sampled(base)
    structural = tuple(
        axis
        for axis in axes
        if any(sampled({**base, axis.symbol: axis.value(steps)}).structure != first.structure for steps in (1, 2))
    )
    sized = tuple(axis for axis in axes if axis not in structural)
    levels: dict[tuple[int, ...], Level] = {}
    without: set[Key] = set()

    def level(fixed: Point) -> Level:
        key = tuple(fixed.values())
        if key not in levels:
            sizes = sample_sizes(sampled, sized, fixed)
            counts, points, open_keys = counts_of(sizes, convention, merged=bool(fixed))
            levels[key] = Level(fixed, sizes, counts, points)
            without.update(open_keys)
        return levels[key]

    _, _, counts, checked = level({axis.symbol: axis.base for axis in structural})
    if structural:
        counts, verified = _through(structural, level, without)
        checked += level(verified).checked
    samples = [] if convention.added_bytes else [sample for table in levels.values() for sample in table.sizes.samples]
    return Derived(
        counts,
        sized,
        structural,
        checked,
        cached_sample.cache_info().currsize,
        registry.unsupported(first.operations, convention.rules),
        frozenset(without),
        tuple((fixed, sizes) for fixed, sizes, *_ in levels.values()),
        frozenset(
            count_key(operation, bool(structural))
            for sample in samples
            if (lacking := unsized(sample.operations, sample.storages))
            for operation in sample.operations
            if lacking.intersection((*operation.reads, *operation.writes))
        ),
    )


def _through(
    structural: Sequence[Axis], level: Callable[[Point], Level], without: Collection[Key]
) -> tuple[Counts, Point]:
    """Interpolate the counts over the structural symbols. Return them, and the structural point at which they were
    verified. Raises Unfitted where no form is found."""
    points: list[Point] = [{axis.symbol: axis.base for axis in structural}]
    points += [{**points[0], axis.symbol: axis.value(1 + i)} for axis in structural for i in range(STRUCTURE_POINTS)]
    for turn in range(STRUCTURE_LONGEST):
        tables = [level(point).counts for point in points]
        fitter = Fitter(points, STRUCTURE_DEGREE)
        counts: Counts = {}
        curved = None
        for key in dict.fromkeys(key for table in tables for key in table if key not in without):
            form = interpolated(fitter, [table.get(key, {}) for table in tables])
            if isinstance(form, str):
                curved = form
                break
            counts[key] = form
        along = [axis for axis in structural if len(structural) == 1 or axis.symbol == curved]
        if along:  # a point further out
            further = {**points[0], along[0].symbol: along[0].value(STRUCTURE_POINTS + 1 + turn)}
        else:  # a point at which all symbols change, each turn in another proportion
            further = {axis.symbol: axis.value(1 + (turn * (i + 1) + i) % 3) for i, axis in enumerate(structural)}
        if further in points:
            continue
        if curved is None:
            exact = level(further).counts
            forms = {key: partly_evaluated(form, further) for key, form in counts.items()}
            if all(forms.get(key, {}) == exact.get(key, {}) for key in (forms.keys() | exact.keys()) - set(without)):
                return counts, further
        points.append(further)
    raise Unfitted(f"no formula in {', '.join(axis.symbol for axis in structural)} was found")


def partly_evaluated(form: Form, point: Point) -> Form:
    """Return a form with numbers in place of some of its symbols."""
    parts = []
    for monomial, coefficient in form.items():
        free = tuple((atom, power) for atom, power in monomial if atom.symbol not in point)
        fixed = tuple((atom, power) for atom, power in monomial if atom.symbol in point)
        parts.append({free: Fraction(value_of({fixed: coefficient}, point))})
    return plus(parts)


# --- answers ---------------------------------------------------------------------------------------------------------


def expression(form: Form) -> Expr:
    """Return a form as a sympy expression."""
    return sympy.Add(
        *(
            sympy.Rational(c.numerator, c.denominator) * sympy.Mul(*(atom.expression() ** n for atom, n in monomial))
            for monomial, c in form.items()
        )
    )


def totals(
    derived: Derived, terms: Iterable[Term] = (), peaks: Mapping[str, Expr] = MappingProxyType({})
) -> dict[str, Expr]:
    """Return every quantity of the whole step, in the order of `QUANTITIES`; None without a formula. terms: added to
    the counts. peaks: the footprints that have a formula."""
    whole = _known_sums(derived)
    for term in terms:
        whole[_OF_TERMS[term.quantity]] += term.expression
    whole.update(dict.fromkeys(unknown(derived)))
    whole = {**whole, "operational_intensity": _intensity(whole), **peaks}
    return {name: whole.get(name) for name in QUANTITIES}


def unknown(derived: Derived) -> dict[str, str]:
    """Return quantity → why it has no formula, for all quantities but the footprints."""
    why = {}
    if derived.without:
        keys = ", ".join(sorted({str(key) for key, _ in derived.without}))
        why["all_flop"] = f"the other FLOP of {keys} have none (unequal windows)"
    if derived.unsized:
        why.update(dict.fromkeys(SIZED, UNSIZED))
    if derived.unsupported:
        why.update(dict.fromkeys((*FLOP, *OF_ATTENTION), f"no rule for {', '.join(derived.unsupported)}"))
    if reason := why.get("all_flop", why.get("bytes_accessed")):
        why["operational_intensity"] = reason
    return why


def at_least(derived: Derived) -> dict[str, Expr]:
    """Return lower bounds of quantities without a formula: the FLOP of the operations that have a rule, if some have
    none, and the bytes of the storages of known size, if some have no known size."""
    names = (FLOP if derived.unsupported else ()) + (SIZED if derived.unsized else ())
    known = _known_sums(derived) if names else {}
    return {name: known[name] for name in names}


def _known_sums(derived: Derived) -> dict[str, Expr]:
    """Return every quantity that is a sum, over the known counts; None for attention's conventions where unknown."""

    def of_operation(key: Any) -> bool:
        return isinstance(key, CountKey)

    roles = {key: form for (key, of), form in derived.counts.items() if of == "role_bytes"}
    sums = {
        "parameters": expression(derived.total("parameters")),
        **{name: derived.cost(name, of_operation) for name in COSTS[:3]},
        "total_footprint_bytes": expression(derived.total(FOOTPRINT)),
        "kept_bytes": expression(plus(form for role, form in roles.items() if role in SAVED_ROLES)),
        "io_bytes": expression(roles.get("input", {})),
    }
    for name, convention in OF_ATTENTION.items():
        is_unknown = derived.total(f"{convention}{UNKNOWN}", of_operation)
        sums[name] = None if is_unknown else sums["model_flop"] - derived.cost(f"{convention}{LESS}", of_operation)
    return sums


def parts(derived: Derived, by: str) -> dict[str, dict[str, Expr]]:
    """Return the costs by phase, kind, module or operation (a key of BY), in order of the step; None for a cost without
    a formula."""
    grouped: dict[str, dict[CountKey, None]] = {}
    for key, _ in derived.counts:
        if isinstance(key, CountKey):
            grouped.setdefault(BY[by](key), {})[key] = None
    open_keys = {key for key, _ in derived.without}
    costs_of = {}
    for name, keys in grouped.items():
        costs = {cost: derived.cost(cost, keys.__contains__) for cost in COSTS}
        if not open_keys.isdisjoint(keys):
            costs["all_flop"] = None
        if not all(key.kind for key in keys):  # not understood
            costs.update(dict.fromkeys(FLOP))
        if not derived.unsized.isdisjoint(keys):
            costs.update(dict.fromkeys(("bytes_accessed", "made_bytes")))
        costs_of[name] = {**costs, "operational_intensity": _intensity(costs)}
    return costs_of


def _intensity(costs: Mapping[str, Expr]) -> Expr:
    """Return the FLOP per byte; 0 where nothing is moved; None without a formula of FLOP or bytes."""
    if costs["all_flop"] is None or costs["bytes_accessed"] is None:
        return None
    return costs["all_flop"] / costs["bytes_accessed"] if costs["bytes_accessed"] != 0 else sympy.Integer(0)
