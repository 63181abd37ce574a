"""What texts of NVTX ranges say: those of torch's `emit_nvtx`, those of PyProf, and those that somebody wrote by hand.

emit_nvtx: "NAME[, seq = N][, op_id = M][, sizes = [[..], []]][, input_op_ids = [..]]", before PyTorch 1.5 also
"stashed seq=N" (torch/csrc/autograd/profiler_legacy, nvtx_observer.cpp). PyProf: a Python dict with the function and
its arguments. Both are read as literals, never evaluated.

Not claimed: that a range's name tells who wrote it; a text that fits no format is a name as it stands.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from results.limits import limit

_SEQUENCE, _STASHED = ", seq = ", ", stashed seq="
_OP_ID = ", op_id = "
_SIZES = ", sizes = "
_IDS = ", input_op_ids = "

Shapes = tuple[Any, ...]


class Name(NamedTuple):
    """A range's text taken apart; -1 and None for what it does not say."""

    name: str
    sequence_nr: int = -1
    op_id: int = -1
    sizes: str | None = None


def parse(text: str) -> Name:
    """The parts of a range's text."""
    if ", " not in text:
        return Name(text)
    rest, _, _ = text.partition(_IDS)
    rest, separator, sizes = rest.partition(_SIZES)
    name, op_id = _number(rest, _OP_ID)
    name, sequence_nr = _number(name, _SEQUENCE)
    if sequence_nr < 0 and "stashed seq" in name:
        name, sequence_nr = _number(name, _STASHED)
    return Name(name, sequence_nr, op_id, sizes if separator else None)


def _number(text: str, key: str) -> tuple[str, int]:
    """A text without the key and the number at its end, and the number; -1: there is none."""
    before, found, digits = text.rpartition(key)
    return (before, int(digits)) if found and digits.isdecimal() else (text, -1)


def sizes(text: str) -> Shapes | None:
    """ "[[32, 3], []]" → ((32, 3), ()); None for what is no list of sizes."""
    try:
        found = json.loads(text)
        return _tuples(found) if isinstance(found, list) and _are_sizes(found) else None
    except (ValueError, RecursionError):  # no JSON, a number of 5,000 digits, lists within lists
        return None


def _are_sizes(value: list[Any]) -> bool:
    """Whole numbers from 0 on, in lists."""
    return all(_are_sizes(each) if isinstance(each, list) else type(each) is int and each >= 0 for each in value)


def marker(text: str) -> Mapping[str, Any] | None:
    """The dict of a PyProf marker; None for any other text."""
    if not text.startswith("{'") or len(text) > limit("line_bytes"):
        return None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
