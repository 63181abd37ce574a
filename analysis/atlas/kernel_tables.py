"""Tables of single kernels as they are kept: a compressed CSV, the same bytes for the same rows."""

from __future__ import annotations

import functools
import io
import lzma
from pathlib import Path

import pandas as pd


def packed_table(rows: pd.DataFrame, columns: tuple[str, ...]) -> bytes:
    """These columns of the rows, compressed."""
    text = rows.to_csv(index=False, columns=list(columns), lineterminator="\n")
    return lzma.compress(text.encode(), preset=9)


@functools.cache
def kept_table(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """The rows of a file. Raises ValueError for one that has other columns."""
    rows = pd.read_csv(io.BytesIO(lzma.decompress(path.read_bytes())), keep_default_na=False)
    if tuple(rows.columns) != columns:
        raise ValueError(f"{path.name}: expected the columns {', '.join(columns)}, got {', '.join(rows.columns)}")
    return rows
