"""From what a counter counted to its rows: a total and one for each operator.

Torch-free. A native number is kept as it came; in FLOP it is 2 a multiply-add and 1 an operation, and a total's FLOP
are the sum of its operators', because some counters add both up in one native number.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from analysis.utilization.counter_operators import FLOP_PER_NATIVE
from results.records.counts import FlopCount

Counted = Mapping[tuple[str, str], int | float]
"""(operator, "mac" or "flop") → the counter's own number."""


def rows(blank: FlopCount, counted: Counted) -> list[FlopCount]:
    """The total and the operators, in the order given.

    blank: who counted what, with `native_unit` of the total and what the counter says of it.
    """
    plain = dataclasses.replace(blank, ignored={}, not_understood={}, reason="", parameters=None, printed=None)
    operators = []
    for (name, unit), native in counted.items():
        value = whole(native)
        flop = round(FLOP_PER_NATIVE[unit] * value)
        operators.append(dataclasses.replace(plain, operator=name, native_value=value, native_unit=unit, flop=flop))
    total, flop = whole(sum(counted.values())), sum(row.flop or 0 for row in operators)
    return [dataclasses.replace(blank, native_value=total, flop=flop), *operators]


def merged(parts: Iterable[Counted]) -> dict[tuple[str, str], int | float]:
    """The counts of several modules together."""
    found: dict[tuple[str, str], int | float] = {}
    for counted in parts:
        for key, native in counted.items():
            found[key] = found.get(key, 0) + native
    return found


def whole(value: float) -> int | float:
    """NumPy numbers and whole floats as int."""
    return int(value) if float(value).is_integer() else float(value)
