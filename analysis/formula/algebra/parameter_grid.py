"""Points and sweeps as text: `hidden=2004,batch=64`, `hidden=512:8192:512,batch=1,2,4`, and the rows they give.

A range `first:last:step` holds its last value if a step meets it; `first:last:*factor` multiplies instead of adding.
Values are whole numbers of at least 1. Nothing here evaluates a formula (`analysis.formula.algebra.evaluate`) or writes
a file.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

MOST_POINTS = 1_000_000
"""A sweep over more points than these is refused."""

_WHOLE = re.compile(r"[0-9](_?[0-9])*")


def parse_point(text: str) -> dict[str, int]:
    """`hidden=2004,batch=64` as a point. Raises ValueError for anything else, and for a symbol with several values."""
    found = axes(text)
    for name, several in found.items():
        if len(several) != 1:
            raise ValueError(f"expected one value for {name}, got {len(several)}: {_listed(several)}")
    return {name: only for name, (only,) in found.items()}


def axes(text: str) -> dict[str, tuple[int, ...]]:
    """`hidden=512:2048:512,batch=1,2,4` as each symbol's values, in the order written.

    A comma parts values of one symbol as well as symbols: what has no `=` belongs to the symbol before it. Raises
    ValueError, in one line, for a piece that is neither, a symbol twice, and a value twice.
    """
    found: dict[str, list[int]] = {}
    name = ""
    for piece in text.split(","):
        label, equals, rest = piece.rpartition("=")
        if equals:
            name = label.strip()
            if not name.isidentifier() or name in found:
                wanted = "each symbol once" if name in found else "a symbol's name before ="
                raise ValueError(f"expected {wanted}, got {piece.strip()!r} in {text!r}")
            found[name] = []
        elif not name:
            raise ValueError(f"expected NAME=VALUE, NAME=A,B,C or NAME=FIRST:LAST:STEP, got {piece.strip()!r}")
        found[name] += span(rest.strip())
    for name, several in found.items():
        if len(set(several)) != len(several):
            raise ValueError(f"expected each value of {name} once, got {_listed(several)}")
    return {name: tuple(several) for name, several in found.items()}


def span(text: str) -> Sequence[int]:
    """The values of `7`, `1:5`, `512:8192:512` or `1:1024:*2`. Raises ValueError for anything else."""
    pieces = text.split(":")
    if len(pieces) == 1:
        return (_whole(text, text),)
    first, last = _whole(pieces[0], text), _whole(pieces[1], text)
    if len(pieces) > 3 or last < first:
        raise ValueError(f"expected FIRST:LAST or FIRST:LAST:STEP with FIRST ≤ LAST, got {text!r}")
    step = pieces[2].strip() if len(pieces) == 3 else "1"
    if not step.startswith("*"):
        values = range(first, last + 1, _whole(step, text))
        if values[MOST_POINTS:]:  # len() of a range has no more digits than a size_t
            raise ValueError(f"expected at most {MOST_POINTS:,} values, got more in {text!r}")
        return values
    factor = _whole(step[1:], text)
    if factor < 2:
        raise ValueError(f"expected a factor of at least 2, got {text!r}")
    return [*itertools.takewhile(lambda number: number <= last, (first * factor**i for i in itertools.count()))]


def points(over: Mapping[str, Sequence[int]], fixed: Mapping[str, int] | None = None) -> Iterator[dict[str, int]]:
    """Every combination of the axes' values beside the fixed ones; the last axis moves fastest.

    Raises ValueError for a symbol that is both, and for more than MOST_POINTS combinations.
    """
    held = dict(fixed or {})
    if shared := held.keys() & over.keys():
        raise ValueError(f"expected a symbol to be fixed or swept, got both for {', '.join(sorted(shared))}")
    if (count := math.prod(map(len, over.values()))) > MOST_POINTS:
        raise ValueError(f"expected at most {MOST_POINTS:,} points, got {count:,}")
    return ({**held, **dict(zip(over, combination, strict=True))} for combination in itertools.product(*over.values()))


def as_csv(rows: Iterable[Mapping[str, int | Fraction]]) -> str:
    """Rows as CSV with a header: whole numbers in all their digits, fractions as the nearest float."""
    listed = list(rows)
    if not listed:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
    writer.writeheader()
    for row in listed:
        writer.writerow({name: cell if isinstance(cell, int) else float(cell) for name, cell in row.items()})
    return text.getvalue()


def _whole(text: str, inside: str) -> int:
    digits = text.strip()
    if not _WHOLE.fullmatch(digits) or int(digits) < 1:
        raise ValueError(f"expected whole numbers of at least 1, got {digits!r} in {inside!r}")
    return int(digits)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")
