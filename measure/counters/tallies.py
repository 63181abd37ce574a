"""What a listener heard while a third-party counter ran, as rows: a total, one an operator, one total a module.

For counters whose own rules are listened to call by call. It knows no counter: each call comes with what the counter's
rule said of it, split into multiply-adds and elements, and nothing here judges that number. Rows of a module hold what
ran inside it, its children's calls too, so that they do not add up to the total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from results.records import FlopCount

ALL = "total"
"""The scope of rows that are of the whole model."""


@dataclass(frozen=True)
class Call:
    """One call as a counter saw it. scopes: paths of the modules that it ran in, outermost first.

    bucket: "counted", "ignored" (no arithmetic) or "not_understood" (the counter has no rule for it).
    """

    operator: str
    scopes: tuple[str, ...] = ()
    mac: int = 0
    elements: int = 0
    bucket: str = "counted"


def rows(calls: Sequence[Call], *, counter: str, workload: str, batch_size: int) -> list[FlopCount]:
    """The total, operators in the order of their names, then modules in the order they ran; all of phase forward."""
    identity = {"counter": counter, "workload": workload, "batch_size": batch_size, "phase": "forward"}
    inside: dict[str, list[Call]] = {}
    for call in calls:
        for scope in dict.fromkeys(call.scopes):
            inside.setdefault(scope, []).append(call)
    modules = [_total(heard, scope, identity) for scope, heard in inside.items() if scope not in ("", ALL)]
    return [_total(calls, ALL, identity), *_operators(calls, identity), *modules]


def ancestry(path: str) -> tuple[str, ...]:
    """The module of this path and all around it, outermost first: "a.b" gives ("a", "a.b")."""
    names = path.split(".") if path else []
    return tuple(".".join(names[:end]) for end in range(1, len(names) + 1))


def _total(calls: Sequence[Call], scope: str, identity: dict[str, str | int]) -> FlopCount:
    mac, elements = sum(call.mac for call in calls), sum(call.elements for call in calls)
    return FlopCount(
        **identity,
        scope=scope,
        native_value=mac + elements,
        native_unit="mac",
        flop=2 * mac + elements,
        ignored=_calls_in("ignored", calls),
        not_understood=_calls_in("not_understood", calls),
    )


def _calls_in(bucket: str, calls: Sequence[Call]) -> dict[str, int]:
    return dict(Counter(call.operator for call in calls if call.bucket == bucket))


def _operators(calls: Sequence[Call], identity: dict[str, str | int]) -> list[FlopCount]:
    """A row for each operator's multiply-adds and one for its elements, without those that are nothing."""
    mac, elements = Counter[str](), Counter[str]()
    for call in calls:
        mac[call.operator] += call.mac
        elements[call.operator] += call.elements
    named = {f"{name} elementwise" if mac[name] else name: counted for name, counted in elements.items()}
    products = [_operator(name, counted, "mac", identity) for name, counted in sorted(mac.items()) if counted]
    return products + [_operator(name, counted, "flop", identity) for name, counted in sorted(named.items()) if counted]


def _operator(name: str, counted: int, unit: str, identity: dict[str, str | int]) -> FlopCount:
    flop = 2 * counted if unit == "mac" else counted
    return FlopCount(**identity, operator=name, native_value=counted, native_unit=unit, flop=flop)
