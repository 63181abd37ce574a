"""Checking the checksums of rows that stand for themselves. How they are made is in `layout.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from results.store import layout


class BrokenSeal(ValueError):
    """A row that is not the one that was written after the row before it. seal: what it says of itself."""

    def __init__(self, seal: bytes) -> None:
        super().__init__("not as it was written: its checksum does not match, or rows before it are gone or moved")
        self.seal = seal


def check_seal(top: bytes, line: bytes, before: bytes) -> bytes:
    """The checksum of a row. Raises BrokenSeal."""
    row, _, seal = line.rpartition(b",")
    if seal != layout.seal_row(top, row, before):
        raise BrokenSeal(seal)
    return seal


def prefixes(top: bytes, lines: Sequence[bytes]) -> dict[int, str]:
    """N → the checksum of the header and the first N rows."""
    counted, whole = {}, hashlib.sha256(top + b"\n")
    for number, line in enumerate(lines, start=1):
        whole.update(line + b"\n")
        counted[number] = whole.copy().hexdigest()[:16]
    return counted
