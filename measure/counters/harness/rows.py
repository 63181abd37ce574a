"""From what a counter counted to its rows: a total and one for each operator, of the whole model and of each module.

Torch-free. A native number is kept as it came; in FLOP it is 2 a multiply-add and 1 an operation, and a total's FLOP
are the sum of its operators', because some counters add both up in one native number.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from analysis.utilization.counter_operators import FLOP_PER_NATIVE
from results.records.counts import FlopCount
from results.records.vocabulary import WHOLE

Counted = Mapping[tuple[str, str], int | float]
"""(operator, "mac" or "flop") → the counter's own number."""


def rows(blank: FlopCount, scopes: Mapping[str, Counted]) -> list[FlopCount]:
    """Total and operators of each scope, in the order given; a module that counted nothing has no rows.

    blank: who counted what, with `native_unit` of its totals and, for the total of all alone, what it says.
    """
    plain = dataclasses.replace(blank, ignored={}, not_understood={}, reason="", parameters=None, printed=None)
    found: list[FlopCount] = []
    for scope, counted in scopes.items():
        if scope != WHOLE and not counted:
            continue
        operators = [_operator(plain, scope, *key, native) for key, native in counted.items()]
        total = dataclasses.replace(
            blank if scope == WHOLE else plain,
            scope=scope,
            native_value=whole(sum(counted.values())),
            flop=sum(row.flop or 0 for row in operators),
        )
        found += [total, *operators]
    return found


def spread(own: Mapping[str, Counted]) -> dict[str, dict[tuple[str, str], int | float]]:
    """Scope → counts, from what each module did itself (path → counts; "" outside of all): a module's scope holds its
    children's work too. A module that is itself called "total" has no scope of its own."""
    scopes: dict[str, dict[tuple[str, str], int | float]] = {WHOLE: {}}
    for path, counted in own.items():
        for scope in (WHOLE, *(name for name in ancestors(path) if name != WHOLE)):
            into = scopes.setdefault(scope, {})
            for key, native in counted.items():
                into[key] = into.get(key, 0) + native
    return scopes


def ancestors(path: str) -> Iterable[str]:
    """ "a.b" → "a", "a.b"; nothing for ""."""
    parts = path.split(".") if path else []
    return (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))


def whole(value: float) -> int | float:
    """NumPy numbers and whole floats as int."""
    return int(value) if float(value).is_integer() else float(value)


def _operator(plain: FlopCount, scope: str, name: str, unit: str, native: float) -> FlopCount:
    exact = whole(native)
    return dataclasses.replace(
        plain,
        scope=scope,
        operator=name,
        native_value=exact,
        native_unit=unit,
        flop=round(FLOP_PER_NATIVE[unit] * exact),
    )
