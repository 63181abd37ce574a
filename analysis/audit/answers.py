"""One framework's number beside the exact count, each FLOP of difference by its cause, and what no cause explains."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from analysis.audit.forms import training_flop
from analysis.audit.network import Model
from analysis.audit.network_rules import causes_of

TABLE = Path(__file__).with_name("frameworks.csv")

RUN, READ = "run", "read"


@dataclass(frozen=True)
class Framework:
    """Where a formula is: version of the package that was audited, file and function. how: run from it, or read.
    needs: another framework whose package the formula asks, too; empty for none."""

    framework: str
    package: str
    version: str
    how: str
    place: str
    needs: str = ""


@dataclass(frozen=True)
class Answer:
    """What one framework says of a training step of one sequence. exact_flop: the dense count; ratio: flop ÷ it."""

    model: str
    family: str
    tokens: int
    framework: str
    version: str
    how: str
    exact_flop: int
    status: str = "ok"
    reason: str = ""
    flop: int | float | None = None
    ratio: float | None = None
    causes: Mapping[str, int] = field(default_factory=dict)
    unexplained_flop: int | float | None = None
    shims: Sequence[str] = ()

    @property
    def largest_cause(self) -> str:
        """The cause that moves it the most; empty where there is none."""
        return max(self.causes, key=lambda cause: abs(self.causes[cause]), default="")


@cache
def frameworks() -> dict[str, Framework]:
    """Name → where its formula is."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["framework"]: Framework(**row) for row in csv.DictReader(file)}


def account(model: Model, tokens: int, framework: Framework, said: Mapping[str, Any], version: str = "") -> Answer:
    """said: {"flop": a fraction in words} or {"reason"}, and {"shims"}. No rule for the model: no cause."""
    exact = training_flop(model, tokens)
    row = Answer(
        model=model.name,
        family=model.family,
        tokens=tokens,
        framework=framework.framework,
        version=version or framework.version,
        how=framework.how,
        exact_flop=exact,
        shims=tuple(said.get("shims", ())),
    )
    if "flop" not in said:
        return replace(row, status="unavailable", reason=said.get("reason", ""))
    flop = Fraction(said["flop"])
    causes = _causes(model, tokens, framework.framework)
    return replace(
        row,
        flop=_number(flop),
        ratio=float(flop / exact),
        causes=causes,
        unexplained_flop=_number(flop - exact - sum(causes.values())),
    )


def _causes(model: Model, tokens: int, framework: str) -> dict[str, int]:
    try:
        found = causes_of(model, tokens, framework)
    except KeyError:
        return {}
    return {cause: flop for cause, flop in found.items() if flop}


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
