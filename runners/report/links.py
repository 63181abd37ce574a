"""`python -m runners.report RUN --links DIR`: a run's collectives beside the rates that its links were measured at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runners.cli.exits import FAILED, Mistake
from runners.report.derived import show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.parallel.link_use import CollectiveRate
    from results.store.reading import RunData

RATES = "collective_rates.csv"


def render(path: Path, rates: Path, form: str) -> int:
    """Prints a row for each rank and kind. 0: one of them has a rate beside it; else 1. Raises Mistake."""
    from analysis.parallel.link_use import LinkUse, link_uses
    from reports.sweep.ranks import links_text
    from results.records.samples import RankCollective

    measured = read_rates(rates)
    data = read_ranks_run(path)
    rows = link_uses(data.runs, data.records(RankCollective), measured)
    show_rows(form, lambda width, colour: links_text(rows, width, colour), rows, LinkUse)
    return 0 if any(row.link_ratio is not None for row in rows) else FAILED


def read_rates(path: Path) -> Sequence[CollectiveRate]:
    """What `runners.ceiling --collectives --out DIR` wrote. path: that DIR, or the file in it. Raises Mistake."""
    from analysis.parallel.link_use import CollectiveRate
    from results.store.tables import read_records

    file = path / RATES if path.is_dir() else path
    if not file.is_file():
        raise Mistake(f"--links: expected {RATES} of runners.ceiling --collectives --out DIR, got no file {file}")
    try:
        return read_records(file, CollectiveRate)
    except (ValueError, OSError) as fault:
        raise Mistake(str(fault)) from fault


def read_ranks_run(path: Path) -> RunData:
    """A run with collectives of several ranks. Raises Mistake for any other."""
    from results.records.samples import RankCollective
    from results.store.reading import read_run

    try:
        data = read_run(path)
        given = data.records(RankCollective)
    except (ValueError, OSError) as fault:
        raise Mistake(str(fault)) from fault
    if not given:
        raise Mistake(
            f"expected a run of several ranks (runners.sweep --parallel), got one without collectives: {path}"
        )
    return data
