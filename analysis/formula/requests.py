"""Parses what a user asks of formulas: `footprint <= 32 GiB for batch`, `hidden=512:8192:512,batch=1,2,4`.

`request` takes a text and returns a `Constraint`. Each side is a formula of quantities, symbols and numbers, with or
without a unit; `for` names the unknown and may restrict its integers. Units become B, FLOP and s, exactly. A bound in a
unit that does not measure its quantity is refused. `parse_point` and `axes` read values of symbols, which are integers
of at least 1. `first:last:step` includes its last value if a step meets it; `first:last:*factor` multiplies. `rates`
returns a device's peak and bandwidth. `time_bound` returns the least time, max(FLOP ÷ peak, bytes ÷ bandwidth), as if
both overlapped perfectly. `solve.py` solves constraints.
"""

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from analysis.devices import peaks
from analysis.formula.expressions import Expr, names, parse, rational, symbol, unknown_name

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
"""Unit → (its measure, its factor). A prefix alone is a factor without a unit: 7 G parameters."""


RELATIONS: Mapping[str, str] = {"<=": "<=", "≤": "<=", ">=": ">=", "≥": ">=", "==": "==", "=": "==", "<": "<", ">": ">"}
"""Spelling → relation."""

EXPECTED = "QUANTITY <= NUMBER UNIT for SYMBOL"

_REQUEST = re.compile(
    r"\s*(?P<left>[^<>=≤≥]+?)\s*(?P<relation><=|>=|==|=|<|>|≤|≥)\s*(?P<right>[^<>=≤≥]+?)\s+for\s+(?P<for>.+)"
)
_FOR = re.compile(r"(?P<name>\w+)\s*(?P<which>.*)")
_NUMBER = re.compile(r"(?<![\w.])((?>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d{1,3}(?!\d))?))\s*([^\W\d_][\w/]*)")


@dataclass(frozen=True)
class Candidates:
    """The integers that an unknown may take: first, first + step, … up to `last` (None: without end)."""

    first: int = 1
    step: int = 1
    last: int | None = None


@dataclass(frozen=True)
class Constraint:
    """left, right: formulas in symbols, in B, FLOP and s. relation: one of RELATIONS' values. text: the request.

    measure: what both sides measure, that of the first quantity where it is known: "B", "FLOP", "FLOP/B" or "s".
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
    """Parse a request.

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
        for _, unit in _NUMBER.findall(other) if side in known else ():  # a quantity has units that measure it
            if unit in UNITS and UNITS[unit][0] not in ("", known[side]):
                fitting = ", ".join(name for name, (measure, _) in UNITS.items() if measure == known[side])
                raise ValueError(f"expected {side} in {fitting or 'plain numbers'}, got {unit!r}")
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
    """Return a number as text, in the largest unit of which it has at least one. measure: "B", "FLOP", "s" or ""."""
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
"""Measure → units for a person, the largest first."""


def _candidates(text: str) -> Candidates:
    """Parse which integers are allowed: nothing, `multiple of 64`, `= 1 mod 8` or `in 8:1024:8`."""
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
    """Replace each number with a unit by a product. Raises ValueError for an unknown unit."""

    def product(match: re.Match[str]) -> str:
        number, unit = match.groups()
        if unit not in UNITS:
            raise ValueError(unknown_name("unit", unit, UNITS))
        factor = UNITS[unit][1]
        return f"({number}*{factor.numerator}/{factor.denominator})"

    return _NUMBER.sub(product, text)


# --- points and sweeps -----------------------------------------------------------------------------------------------


MOST_POINTS = 1_000_000
"""Largest sweep, in points."""

_WHOLE = re.compile(r"[0-9](_?[0-9])*")


def parse_point(text: str) -> dict[str, int]:
    """Parse `hidden=2004,batch=64`. Raises ValueError for anything else, and for a symbol with several values."""
    values = axes(text)
    for name, several in values.items():
        if len(several) != 1:
            raise ValueError(f"expected one value for {name}, got {len(several)}: {_listed(several)}")
    return {name: only for name, (only,) in values.items()}


def axes(text: str) -> dict[str, tuple[int, ...]]:
    """Parse `hidden=512:2048:512,batch=1,2,4` into each symbol's values, in the order written.

    A comma separates values of one symbol as well as symbols: a piece without `=` belongs to the symbol before it.
    Raises ValueError, in one line, for a piece that cannot be read, a symbol twice, and a value twice.
    """
    values: dict[str, list[int]] = {}
    name = ""
    for piece in text.split(","):
        label, equals, rest = piece.rpartition("=")
        if equals:
            name = label.strip()
            if not name.isidentifier() or name in values:
                wanted = "each symbol once" if name in values else "a symbol's name before ="
                raise ValueError(f"expected {wanted}, got {piece.strip()!r} in {text!r}")
            values[name] = []
        elif not name:
            raise ValueError(f"expected NAME=VALUE, NAME=A,B,C or NAME=FIRST:LAST:STEP, got {piece.strip()!r}")
        values[name] += span(rest.strip())
    for name, several in values.items():
        if len(set(several)) != len(several):
            raise ValueError(f"expected each value of {name} once, got {_listed(several)}")
    return {name: tuple(several) for name, several in values.items()}


def span(text: str) -> Sequence[int]:
    """Parse `7`, `1:5`, `512:8192:512` or `1:1024:*2`. Raises ValueError for anything else."""
    pieces = text.split(":")
    if len(pieces) == 1:
        return (_digits_of(text, text),)
    first, last = _digits_of(pieces[0], text), _digits_of(pieces[1], text)
    if len(pieces) > 3 or last < first:
        raise ValueError(f"expected FIRST:LAST or FIRST:LAST:STEP with FIRST ≤ LAST, got {text!r}")
    step = pieces[2].strip() if len(pieces) == 3 else "1"
    if not step.startswith("*"):
        values = range(first, last + 1, _digits_of(step, text))
        if values[MOST_POINTS:]:  # len() of a range has no more digits than a size_t
            raise ValueError(f"expected at most {MOST_POINTS:,} values, got more in {text!r}")
        return values
    factor = _digits_of(step[1:], text)
    if factor < 2:
        raise ValueError(f"expected a factor of at least 2, got {text!r}")
    return [*itertools.takewhile(lambda number: number <= last, (first * factor**i for i in itertools.count()))]


def points(swept: Mapping[str, Sequence[int]], fixed: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Return every combination of the swept values with the fixed ones; the last axis moves fastest.

    Raises ValueError for more than MOST_POINTS combinations.
    """
    if (count := math.prod(map(len, swept.values()))) > MOST_POINTS:
        raise ValueError(f"expected at most {MOST_POINTS:,} points, got {count:,}")
    return (
        {**fixed, **dict(zip(swept, combination, strict=True))} for combination in itertools.product(*swept.values())
    )


def _digits_of(text: str, inside: str) -> int:
    digits = text.strip()
    if not _WHOLE.fullmatch(digits) or int(digits) < 1:
        raise ValueError(f"expected whole numbers of at least 1, got {digits!r} in {inside!r}")
    return int(digits)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")


# --- a device --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """FLOP/s and bytes/s of a device, and their source."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    source: str

    @property
    def ridge(self) -> Fraction:
        """FLOP per byte at which arithmetic and memory take equally long."""
        return Fraction(self.peak_flop_per_s) / Fraction(self.bandwidth_bytes_per_s)


def time_bound(flop: Expr, nbytes: Expr, device: Rates) -> Expr:
    """Return the least time in seconds, as a maximum of two formulas."""
    arithmetic = sympy.sympify(flop) / rational(device.peak_flop_per_s)
    memory = sympy.sympify(nbytes) / rational(device.bandwidth_bytes_per_s)
    return sympy.Max(arithmetic, memory, evaluate=False)  # comparing the formulas of a model takes minutes


def rates(device_name: str, unit: str) -> Rates:
    """Return the datasheet rates of a device. device_name: as its driver prints it or as a person types it. unit:
    "fp32", "bf16", … (analysis.devices.precisions).

    Raises ValueError for a device or a unit without a peak, with the nearest names, and without a bandwidth.
    """
    device = peaks.device_called(device_name)
    if unit not in device.peaks:
        raise ValueError(f"{device.name}: {unknown_name('unit', unit, device.peaks)}")
    if device.bandwidth_bytes_per_s is None:
        raise ValueError(f"{device.name}: expected a device with a datasheet bandwidth, got none")
    return Rates(device.peaks[unit], device.bandwidth_bytes_per_s, device.source)
