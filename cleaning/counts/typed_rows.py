"""The rows of a raw table as records again, so that a cleaning step sees one typed value a field.

The inverse of what `results.store.tables` does to columns: a gap is None, nested values are opened. Changes no value.
"""

from __future__ import annotations

import math
import typing
from typing import TYPE_CHECKING, Any, TypeVar

from results.records import Record, from_text, header

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound=Record)


def records(frame: pd.DataFrame, record: type[R]) -> tuple[R, ...]:
    """One record a row of a table that `results.store.tables` typed. Raises ValueError for text that a field cannot
    hold."""
    hints = typing.get_type_hints(record)
    columns = {name: [_value(value, hints[name]) for value in frame[name].tolist()] for name in header(record)}
    return tuple(record(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))


def _value(value: Any, hint: Any) -> Any:
    if isinstance(value, str):
        return from_text(value, hint)
    return None if _is_gap(value) else value


def _is_gap(value: Any) -> bool:
    """Whether pandas says "unknown" here: None, NaN or NA, which is of no type that could be named without pandas."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
