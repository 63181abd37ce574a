"""What a gate is (its name, what it asks, when it must not be open), and what it finds of one cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cleaning.gates.evidence import Evidence

RUN = "run"
"""Stands for a cell id where something is found of the run as a whole."""


@dataclass(frozen=True)
class Finding:
    """holds: whether what the gate asks is so. words: the numbers that say it; of a gate that holds they may be left
    out."""

    cell_id: str
    holds: bool
    words: str = ""


Check = Callable[[Evidence], Iterable[Finding]]


@dataclass(frozen=True)
class Gate:
    """name; checks: what must hold, in words; check: asks it; needs: what an open gate lacks; after: the gates whose
    failures leave a cell out of this one; on: kinds of device whose published runs it must not be open for."""

    name: str
    checks: str
    check: Check
    needs: str
    after: tuple[str, ...] = ()
    on: tuple[str, ...] = ("cuda", "cpu")
