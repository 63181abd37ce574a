"""The answers that formulas of a step give: totals by name, and the same by phase, kind, module or operation.

Every expression is sympy's, exact, in the symbols asked for. Model FLOP, all FLOP and bytes are as
`analysis/operators/cost.py` has them; footprints are of storages, each counted once:

* *total footprint*: every storage of the step, weights, gradients and state of the optimizer included, as if none were
  freed. It is Catamount's total footprint, not what an allocator needs.
* *kept*: what is alive when the backward pass begins (weights, buffers, state, inputs, activations): no step that keeps
  its activations needs less.
* *input and output*: the batch and its targets;
* *eager* and *minimal footprint*: the peaks of live bytes, which `analysis/formula/footprint.py` finds.

A quantity that has no formula is None (`Derived.without`: all FLOP, and what hangs on them), and so are model FLOP and
all FLOP of a step with an operation that no rule understands, and its bytes where a storage has no known size
(`Derived.unsized`): `at_least` has those of its other operations and storages.

`time_bound` is the least time of a formula's work on a device, as a formula; `Rates.ridge` is the device's ridge point.

    time = max(FLOP ÷ peak, bytes ÷ bandwidth)

Arithmetic and memory overlap perfectly. Not claimed: that a device reaches it; launches, communication and waiting are
left out. Rates are taken for exactly what the floats hold, so that a request about time is solved as exactly as any
other.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import sympy

from analysis.catamount.graph_terms import Term
from analysis.devices import peaks
from analysis.formula.derive import Derived
from analysis.formula.expressions import rational, unknown_name
from analysis.formula.interpolate import Form, plus
from analysis.formula.sampling import CountKey
from analysis.formula.symbolic_table import FOOTPRINT, LESS, UNKNOWN
from analysis.operators.attention_conventions import BY_RULE

Expr = Any

KEPT = ("weight", "buffer", "optimizer_state", "input", "activation")
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
"""Name → what it is called in a table."""

COSTS = ("model_flop", "all_flop", "bytes_accessed", "made_bytes", "calls")
"""What there is of each phase, kind, module and operation. made_bytes: of the storages that it makes."""

FLOP = ("model_flop", "all_flop")

OF_ATTENTION = {f"{name}_flop": name for name in BY_RULE}
"""Quantity → convention of attention; all others count attention dense (docs/conventions.md)."""

SIZED = ("bytes_accessed", "total_footprint_bytes", "kept_bytes")
"""What lacks a storage whose size is not known, which a step keeps for its backward pass."""

PART = (*COSTS, "operational_intensity")
"""Quantities of a part: its costs, and all FLOP ÷ bytes accessed."""

BY: Mapping[str, Callable[[CountKey], str]] = {
    "phase": lambda place: place.phase,
    "kind": lambda place: place.kind or "not understood",
    "module": lambda place: place.module or "(the model itself)",
    "operation": lambda place: f"{place.module or '(the model itself)'} {place.name} ({place.phase})",
}

_PARTS = {
    "all_flop": ("model_flop", "other_flop"),
    "bytes_accessed": ("read_bytes", "written_bytes"),
}


_OF_TERMS = {
    "parameters": "parameters",
    "all_flop": "flop",
    "bytes_accessed": "bytes",
    "total_footprint_bytes": "footprint",
}


def expression(form: Form) -> Expr:
    """A form in sympy's terms."""
    return sympy.Add(
        *(
            sympy.Rational(c.numerator, c.denominator) * sympy.Mul(*(atom.expression() ** n for atom, n in monomial))
            for monomial, c in form.items()
        )
    )


def totals(
    derived: Derived, terms: Iterable[Term] = (), peaks: Mapping[str, Expr] = MappingProxyType({})
) -> dict[str, Expr]:
    """Every quantity of the whole step, in the order of `QUANTITIES`. peaks: the footprints that have a formula."""
    whole = _known_sums(derived)
    for term in terms:
        for name, quantity in _OF_TERMS.items():
            if term.quantity == quantity:
                whole[name] += term.expression
    whole["all_flop"] = None if derived.without else whole["all_flop"]
    if derived.not_understood:
        whole.update(dict.fromkeys((*FLOP, *OF_ATTENTION)))
    if derived.unsized:
        whole.update(dict.fromkeys(SIZED))
    whole["operational_intensity"] = _intensity(whole)
    whole.update(peaks)
    return {name: whole.get(name) for name in QUANTITIES}


def at_least(derived: Derived) -> dict[str, Expr]:
    """FLOP of the operations that a rule understands, and bytes of the storages of known size, where there are
    others; else nothing."""
    names = (FLOP if derived.not_understood else ()) + (SIZED if derived.unsized else ())
    known = _known_sums(derived) if names else {}
    return {name: known[name] for name in names}


def _known_sums(derived: Derived) -> dict[str, Expr]:
    """Every quantity that is a sum, of all that is known."""
    roles = {place: form for (place, of), form in derived.counts.items() if of == "role_bytes"}
    forms = {
        "parameters": derived.total("parameters"),
        **{name: _cost(derived, name, lambda place: isinstance(place, CountKey)) for name in COSTS[:3]},
        "total_footprint_bytes": derived.total(FOOTPRINT),
        "kept_bytes": plus(form for role, form in roles.items() if role in KEPT),
        "io_bytes": roles.get("input", {}),
    }
    sums = {name: expression(form) for name, form in forms.items()}
    for name, convention in OF_ATTENTION.items():
        unknown = derived.total(f"{convention}{UNKNOWN}", lambda place: isinstance(place, CountKey))
        less = expression(_cost(derived, f"{convention}{LESS}", lambda place: isinstance(place, CountKey)))
        sums[name] = None if unknown else sums["model_flop"] - less
    return sums


def parts(derived: Derived, by: str) -> dict[str, dict[str, Expr]]:
    """Costs by phase, kind, module or operation, in order of the step."""
    label = BY[by]
    grouped: dict[str, list[CountKey]] = {}
    for place in dict.fromkeys(place for place, _ in derived.counts if isinstance(place, CountKey)):
        grouped.setdefault(label(place), []).append(place)
    costs_of = {
        name: {cost: expression(_cost(derived, cost, frozenset(places).__contains__)) for cost in COSTS}
        for name, places in grouped.items()
    }
    for place, _ in derived.without:
        costs_of[label(place)]["all_flop"] = None
    for place in dict.fromkeys(place for place, _ in derived.counts if isinstance(place, CountKey)):
        if not place.kind:  # not understood
            costs_of[label(place)].update(dict.fromkeys(FLOP))
        if place in derived.unsized:
            costs_of[label(place)].update(dict.fromkeys(("bytes_accessed", "made_bytes")))
    return {name: {**costs, "operational_intensity": _intensity(costs)} for name, costs in costs_of.items()}


def _intensity(costs: Mapping[str, Expr]) -> Expr:
    """FLOP per byte; 0 of what moves nothing; None without a formula of the FLOP or the bytes."""
    if costs["all_flop"] is None or costs["bytes_accessed"] is None:
        return None
    return costs["all_flop"] / costs["bytes_accessed"] if costs["bytes_accessed"] != 0 else sympy.Integer(0)


def _cost(derived: Derived, name: str, keep: Callable[[Any], bool]) -> Form:
    return plus(derived.total(part, keep) for part in _PARTS.get(name, (name,)))


@dataclass(frozen=True)
class Rates:
    """FLOP/s and bytes/s of a device, with where they come from."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    source: str

    @property
    def ridge(self) -> Fraction:
        """FLOP per byte at which arithmetic and memory take as long."""
        return Fraction(self.peak_flop_per_s) / Fraction(self.bandwidth_bytes_per_s)


def time_bound(flop: Expr, nbytes: Expr, device: Rates) -> Expr:
    """The least time in seconds, as a maximum of two formulas."""
    arithmetic = sympy.sympify(flop) / rational(device.peak_flop_per_s)
    memory = sympy.sympify(nbytes) / rational(device.bandwidth_bytes_per_s)
    return sympy.Max(arithmetic, memory, evaluate=False)  # comparing the formulas of a model takes minutes


def rates(device_name: str, unit: str) -> Rates:
    """Datasheet rates of a device by the name its driver prints. unit: "fp32", "bf16", … (analysis.devices.precisions).

    Raises ValueError for a device or a unit without figures, naming the nearest.
    """
    device = peaks.device_called(device_name)
    if unit not in device.peaks:
        raise ValueError(f"{device.name}: {unknown_name('unit', unit, device.peaks)}")
    if device.bandwidth_bytes_per_s is None:
        raise ValueError(f"{device.name}: its sheet prints no bandwidth")
    return Rates(device.peaks[unit], device.bandwidth_bytes_per_s, device.source)
