"""Units as people write them, with decimal (kB, GFLOP) and binary (KiB) prefixes. Needs no sympy, as commands want it
before they answer."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

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
