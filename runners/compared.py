"""`python -m runners.report A B`: are these two runs different? Reads both, and writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runners.exits import Mistake

if TYPE_CHECKING:
    from collections.abc import Collection

    from results.reading import RunData


def told(a: Path, b: Path, form: str, across: Collection[str] = (), margin_ratio: float | None = None) -> int:
    """Prints a row for each cell of either run; 0. Raises Mistake for runs that cannot be compared."""
    from reports import compared, compared_text
    from reports.tables import to_csv, to_json
    from results.comparisons import Comparison

    try:
        rows = compared.compared(_read(a), _read(b), across, margin_ratio)
    except (ValueError, OSError) as fault:
        raise Mistake(str(fault)) from fault
    if form == "csv":
        print(to_csv(rows, Comparison), end="")
    elif form == "json":
        print(to_json(rows), end="")
    else:
        print(compared_text.to_text(rows, str(a), str(b), sorted(across)), end="")
    return 0


def _read(path: Path) -> RunData:
    from results.store import read_run

    data = read_run(path)
    if not data.runs:
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell")
    return data
