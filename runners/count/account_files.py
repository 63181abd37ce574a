"""The files of `runners.count --out`: tables of accounts, causes and ratios, waterfalls.

A file of that name is replaced at once or not at all; others in the directory are left alone. Tables come first, so
that a picture that fails loses none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runners.cli.output_files import put

if TYPE_CHECKING:
    from results.records.accounts import Account, AccountCause, AccountRatio


def write(
    out: Path, accounts: Sequence[Account], causes: Sequence[AccountCause], ratios: Sequence[AccountRatio]
) -> None:
    """accounts.csv, causes.csv, ratios.csv; a waterfall of each model and pass, PNG and SVG. Raises StoreFault."""
    from reports.count import waterfall_figure
    from reports.shared import figure_style
    from reports.sweep.answer.table import to_csv
    from results.records.accounts import Account, AccountCause, AccountRatio

    tables = {"accounts": to_csv(accounts, Account), "causes": to_csv(causes, AccountCause)}
    tables |= {"ratios": to_csv(ratios, AccountRatio)}
    for name, rows in tables.items():
        put(out / f"{name}.csv", rows)
    for name, content in figure_style.drawn(lambda: waterfall_figure.waterfalls(accounts, causes)).items():
        put(out / name, content)
