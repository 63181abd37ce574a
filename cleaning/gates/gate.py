"""What a gate is: its name, what it asks, and when it must not be open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Found

Check = Callable[[Evidence], Iterable[Found]]


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
