"""Rows of text as a pandas table with the types of their record.

Exact integers never pass through a float: they become `Int64` with gaps, or Python integers (dtype object) where one
is beyond 64 bits. Floats are float64 with NaN for unknown, booleans `boolean`, text `str` with "" for empty. A field
that may be an integer or a float stays Python numbers (dtype object). Nested values stay compact JSON text, "" for
unknown: `rows.from_text` or `json.loads` opens them.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from results.records.rows import Record, from_text, kinds_of, literal
from results.records.vocabulary import SCHEMA_VERSION
from results.store.columns import Block, texts

_INT64 = np.iinfo(np.int64)


def table(
    file: str, record: type[Record], names: Sequence[str], blocks: Iterable[Block], version: int = SCHEMA_VERSION
) -> pd.DataFrame:
    """The fields of `record` from rows whose columns are `names`; rows of an older version are migrated first.

    Raises ValueError for a row of another width, a column without default that is missing, or text that its type
    cannot hold; each with the name of the file.
    """
    hints = typing.get_type_hints(record)
    built = {}
    for name, values in texts(file, record, names, blocks, version).items():
        try:
            built[name] = column(values, hints[name])
        except ValueError as fault:
            raise ValueError(f"{file}, column {name}: {fault}") from fault
    return pd.DataFrame(built)


def column(texts: Sequence[str], hint: Any) -> pd.Series[Any]:
    """One column of text as the type of its field. Raises ValueError for text that it cannot hold."""
    kinds = kinds_of(hint)
    if kinds in _BUILDERS:
        return _BUILDERS[kinds](texts)
    if kinds == (int, float):
        return pd.Series([from_text(text, hint) for text in texts], dtype=object)
    return pd.Series([literal(text) for text in texts], dtype="str")


def _integers(texts: Sequence[str]) -> pd.Series[Any]:
    values = [int(text) if text else 0 for text in texts]
    unknown = np.array([not text for text in texts], dtype=bool)
    if values and not _INT64.min <= min(values) <= max(values) <= _INT64.max:
        exact = [None if gap else value for value, gap in zip(values, unknown, strict=True)]
        return pd.Series(exact, dtype=object)
    return pd.Series(pd.arrays.IntegerArray(np.array(values, dtype=np.int64), unknown))


def _booleans(texts: Sequence[str]) -> pd.Series[Any]:
    values = np.array([from_text(text, bool | None) is True for text in texts], dtype=bool)
    unknown = np.array([not text for text in texts], dtype=bool)
    return pd.Series(pd.arrays.BooleanArray(values, unknown))


_BUILDERS: dict[tuple[Any, ...], Callable[[Sequence[str]], pd.Series[Any]]] = {
    (int,): _integers,
    (float,): lambda texts: pd.Series([float(text) if text else np.nan for text in texts], dtype=np.float64),
    (bool,): _booleans,
}
