"""The files of `runners.count --out`: tables of accounts, causes and ratios, laws of the batch, waterfalls.

A file of that name is replaced at once or not at all; others in the directory are left alone. Tables come first, so
that a picture that fails loses none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from results import disk
from results.errors import StoreFault

if TYPE_CHECKING:
    from results.accounts import Account, AccountCause, AccountRatio


def make(out: Path) -> None:
    """The directory, before anything is counted for it. Raises StoreFault."""
    try:
        disk.make_directory(disk.DISK, out)
    except OSError as fault:
        raise StoreFault(f"--out {out} could not be made: {fault.strerror or fault}") from fault


def write(
    out: Path, accounts: Sequence[Account], causes: Sequence[AccountCause], ratios: Sequence[AccountRatio]
) -> None:
    """accounts.csv, causes.csv, ratios.csv; a waterfall of each model and pass, PNG and SVG. Raises StoreFault."""
    from reports import figures_accounts, style
    from reports.tables import to_csv
    from results.accounts import Account, AccountCause, AccountRatio

    tables = {"accounts": to_csv(accounts, Account), "causes": to_csv(causes, AccountCause)}
    tables |= {"ratios": to_csv(ratios, AccountRatio)}
    put(out, {f"{name}.csv": rows for name, rows in tables.items()})
    with style.theme():
        for name, figure in figures_accounts.waterfalls(accounts, causes).items():
            put(out, {f"{name}.{ending}": content for ending, content in style.render(figure).items()})


def put(out: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes files of these names and contents. Raises StoreFault."""
    make(out)
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        try:
            disk.replace(disk.DISK, out / name, data)
        except OSError as fault:
            raise StoreFault(f"{out / name} could not be written: {fault.strerror or fault}") from fault
