"""What to solve for, as text: `footprint <= 32 GiB for batch`, `intensity >= ridge for hidden multiple of 64`.

Each side is a formula of quantities (the caller's names for formulas), symbols and numbers, which may carry a unit;
`for` names the unknown and may say which whole numbers it can be. Units become B, FLOP and s here, exactly. Where the
caller says in what its quantities are, a bound in another unit is refused. Nothing here solves
(`analysis.formula.solve`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from analysis.formula.evaluate import span
from analysis.formula.expressions import Expr, names, parse, symbol, unknown_name

_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

UNITS: Mapping[str, tuple[str, Fraction]] = {
    **{f"{prefix}B": ("B", Fraction(factor)) for prefix, factor in {"": 1, **_DECIMAL, **_BINARY}.items()},
    **{f"{prefix}FLOP": ("FLOP", Fraction(factor)) for prefix, factor in {"": 1, **_DECIMAL}.items()},
    **{f"{prefix}FLOP/s": ("FLOP/s", Fraction(factor)) for prefix, factor in {"": 1, **_DECIMAL}.items()},
    **{f"{prefix}B/s": ("B/s", Fraction(factor)) for prefix, factor in {"": 1, **_DECIMAL, **_BINARY}.items()},
    "FLOP/B": ("FLOP/B", Fraction(1)),
    "s": ("s", Fraction(1)),
    "ms": ("s", Fraction(1, 10**3)),
    "us": ("s", Fraction(1, 10**6)),
    "µs": ("s", Fraction(1, 10**6)),
    "ns": ("s", Fraction(1, 10**9)),
    **{prefix: ("", Fraction(factor)) for prefix, factor in _DECIMAL.items()},
}
"""Unit → (what it measures, how much of that). A bare prefix is a plain number: 7 G parameters."""


RELATIONS: Mapping[str, str] = {"<=": "<=", "≤": "<=", ">=": ">=", "≥": ">=", "==": "==", "=": "==", "<": "<", ">": ">"}
"""As written → as meant."""

EXPECTED = "QUANTITY <= NUMBER UNIT for SYMBOL"

_REQUEST = re.compile(
    r"\s*(?P<left>[^<>=≤≥]+?)\s*(?P<relation><=|>=|==|=|<|>|≤|≥)\s*(?P<right>[^<>=≤≥]+?)\s+for\s+(?P<for>.+)"
)
_FOR = re.compile(r"(?P<name>\w+)\s*(?P<which>.*)")
_NUMBER = re.compile(r"(?<![\w.])((?>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d{1,3}(?!\d))?))\s*([^\W\d_][\w/]*)")


@dataclass(frozen=True)
class Candidates:
    """The whole numbers an unknown may be: first, first + step, … up to `last` (None: without end)."""

    first: int = 1
    step: int = 1
    last: int | None = None

    def count(self) -> int | None:
        """How many there are; None: without end."""
        return None if self.last is None else (self.last - self.first) // self.step + 1


@dataclass(frozen=True)
class Constraint:
    """left, right: formulas in symbols, in B, FLOP and s. relation: one of RELATIONS' values. text: as it was asked.

    measure: what both sides are, that of the first quantity of which it is known: "B", "FLOP", "FLOP/B" or "s".
    """

    left: Expr
    relation: str
    right: Expr
    unknown: str
    candidates: Candidates
    text: str
    measure: str = ""


def request(
    text: str,
    quantities: Mapping[str, Expr],
    symbols: Collection[str] | None = None,
    measures: Mapping[str, str] | None = None,
) -> Constraint:
    """The request that a text makes.

    quantities: name → formula, in B, FLOP, s or plain numbers. symbols: that may be used (None: those of the
    quantities). measures: name → "B", "FLOP", "FLOP/B", "s" or "" (a count), for quantities whose bounds are to be
    checked. Raises ValueError, in one line with the nearest valid name, for anything that cannot be read.
    """
    match = _REQUEST.fullmatch(text)
    if match is None:
        raise ValueError(f"expected {EXPECTED}, with <=, >=, ==, < or >, got {text!r}")
    valid = sorted(symbols) if symbols is not None else names(*quantities.values())
    meanings = {**{name: symbol(name) for name in valid}, **quantities}
    sides = [match["left"].strip(), match["right"].strip()]
    known = measures or {}
    for side, other in (sides, sides[::-1]):
        _check_units(side, other, known)
    unknown = _FOR.fullmatch(match["for"].strip())
    if unknown is None:
        raise ValueError(f"expected a symbol after for, got {match['for'].strip()!r}")
    if unknown["name"] not in valid:
        raise ValueError(unknown_name("symbol", unknown["name"], valid))
    return Constraint(
        left=parse(_in_base_units(match["left"]), meanings),
        relation=RELATIONS[match["relation"]],
        right=parse(_in_base_units(match["right"]), meanings),
        unknown=unknown["name"],
        candidates=_candidates(unknown["which"]),
        text=" ".join(text.split()),
        measure=next((known[word] for word in re.findall(r"\w+", text) if word in known), ""),
    )


def amount(number: int | Fraction, measure: str) -> str:
    """A number of B, FLOP or s (or of nothing) for a person, in the largest unit of which it has at least one."""
    exact = Fraction(number)
    for unit in _SHOWN.get(measure, ()):
        factor = UNITS[unit][1]
        if abs(exact) >= factor:
            return f"{float(exact / factor):.4g} {unit}"
    if exact.denominator == 1 and abs(exact) < 10**15:
        return f"{exact.numerator:,} {measure}".rstrip()
    return f"{float(exact):.6g} {measure}".rstrip()


_SHOWN: Mapping[str, Sequence[str]] = {
    "B": ("PiB", "TiB", "GiB", "MiB", "KiB"),
    "s": ("s", "ms", "us", "ns"),
    "FLOP": ("EFLOP", "PFLOP", "TFLOP", "GFLOP", "MFLOP", "kFLOP"),
}
"""What it measures → units for a person, the largest first."""


def _candidates(text: str) -> Candidates:
    """Which whole numbers: nothing, `multiple of 64`, `= 1 mod 8` or `in 8:1024:8`."""
    if match := re.fullmatch(r"(?:multiple of|(?:=|==|≡)\s*(?P<rest>\d+)\s+mod)\s+(?P<step>\d+)|", text):
        step = int(match["step"] or 1)
        if step < 1:
            raise ValueError(f"expected a step of at least 1, got {text!r}")
        return Candidates(int(match["rest"] or 0) % step or step, step)
    if match := re.fullmatch(r"in\s+(\d+\s*:\s*\d+(?:\s*:\s*\d+)?)", text):
        values = span(match[1].replace(" ", ""))
        step = values[1] - values[0] if len(values) > 1 else 1
        return Candidates(values[0], step, values[-1])
    raise ValueError(
        f"expected multiple of M, = R mod M, in FIRST:LAST[:STEP] or nothing after the symbol, got {text!r}"
    )


def _in_base_units(text: str) -> str:
    """Each number with a unit as a product. Raises ValueError for a unit that there is not."""

    def product(match: re.Match[str]) -> str:
        number, unit = match.groups()
        if unit not in UNITS:
            raise ValueError(unknown_name("unit", unit, UNITS))
        factor = UNITS[unit][1]
        return f"({number}*{factor.numerator}/{factor.denominator})"

    return _NUMBER.sub(product, text)


def _check_units(side: str, other: str, measures: Mapping[str, str]) -> None:
    """Raises ValueError where one side is a quantity and the other has units that do not measure it."""
    if side not in measures:
        return
    for _, unit in _NUMBER.findall(other):
        if unit in UNITS and UNITS[unit][0] not in ("", measures[side]):
            fitting = ", ".join(known for known, (measure, _) in UNITS.items() if measure == measures[side])
            raise ValueError(f"expected {side} in {fitting or 'plain numbers'}, got {unit!r}")
