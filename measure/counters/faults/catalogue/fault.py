"""What a fault of a counter is: a record of what it gives, what would be right, why, and how to see it.

A fault is reproduced by a function without arguments, the smallest that shows it, which calls the counter itself and no
part of this project. The function's docstring is its description: the first line says what is wrong, what follows
derives the right value. What a counter leaves out by a convention it documents is no fault and has no entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

KINDS = {
    "wrong count": "a number that is not that of the work, by the counter's own convention",
    "missing operation": "work of a kind that it counts elsewhere, counted as nothing, without a word",
    "crash": "an exception for a model that runs",
    "side effect": "the model, or torch, is not as it was before",
    "inconsistency": "two numbers of the same counter that contradict each other",
}

CAUSES = {
    "formula": "the formula takes the wrong sizes",
    "no formula": "the operation reaches the counter, which has no formula for it",
    "not seen": "the work goes another way than past the hooks, patches or modes that the counter looks from",
    "fused path": "in evaluation without gradients torch runs one fused operation, which has no formula",
    "type match": "modules are known by their exact type, or by what their class is called",
    "counted twice": "a module or function is reached by two ways, and both count",
    "unit": "multiply-adds, elements and FLOP are added up as one",
    "batch": "a part is divided by the batch, or one sample taken for all",
    "calling form": "arguments of a form that torch takes (keywords, lists, no batch) are not understood",
    "tracing": "the model must go through a tracer that cannot follow it",
    "left behind": "what was patched, registered or switched is not put back",
    "interference": "what runs under the counter is not what runs without it",
    "attribution": "the total is right, the modules' parts are not",
    "report": "what is printed is not what was counted",
    "backward by decree": "the backward pass is a fixed multiple of the forward pass, whatever it is",
    "environment": "needs what newer versions of Python or torch do not have",
    "no work": "something that is no arithmetic on floating-point numbers is counted",
}


@dataclass(frozen=True)
class Fault:
    """One fault. reproduce: what shows it; kind, cause: keys of KINDS and CAUSES.

    seen: what the counter gives; right: what it should; both JSON-able, exact, in the counter's own unit. "raises NAME"
    stands for an exception. threads: where its users or authors speak of it. versions: of the counter's package that
    have it, "<2.15" or ">=2.12,<2.15"; empty: all that were tried.
    """

    reproduce: Callable[[], Any]
    kind: str
    cause: str
    seen: Any
    right: Any
    threads: tuple[str, ...] = ()
    versions: str = ""

    @property
    def name(self) -> str:
        """Unique in its counter."""
        return str(self.reproduce.__name__)

    @property
    def what(self) -> str:
        """One sentence."""
        return _paragraphs(self.reproduce)[0]

    @property
    def why(self) -> str:
        """How the right value follows; empty where it is plain."""
        return " ".join(_paragraphs(self.reproduce)[1:])

    def concerns(self, version: str) -> bool:
        """Whether this version of the counter's package has the fault."""
        return all(_holds(part, version) for part in self.versions.split(",") if part)


def put_to(function: Callable[[Any], Any], count: Callable[..., Any]) -> Callable[[], Any]:
    """A reproduction that several counters share, put to the counter that `count` asks."""

    @wraps(function)
    def reproduce() -> Any:
        return function(count)

    return reproduce


def _paragraphs(function: Callable[[], Any]) -> list[str]:
    parts = (function.__doc__ or "").strip().split("\n\n")
    return [" ".join(part.split()) for part in parts]


def _holds(condition: str, version: str) -> bool:
    """Whether a version satisfies "<2.15" or ">=2.15". Raises ValueError for another form of condition."""
    found = re.fullmatch(r"(<|>=)(\d+(?:\.\d+)*)", condition)
    if found is None:
        raise ValueError(f"expected a condition such as <2.15 or >=2.15, got {condition!r}")
    relation, bound = found.groups()
    mine, theirs = _numbers(version), _numbers(bound)
    return mine < theirs if relation == "<" else mine >= theirs


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
