"""docs/peaks-audit.md: what other packages' tables of peaks say, beside ours.

    python -m benchmarks.pages.peaks.audit                                # print the page, of the kept answers
    python -m benchmarks.pages.peaks.audit --write                        # make docs/peaks-audit.md again
    python -m benchmarks.pages.peaks.audit --ask --packages DIR --write   # ask the packages anew, and keep that

Not claimed: anything of a version that was not asked; which were, the page says.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measure.peak_tables import TABLES
from reports.peak_tables import markdown_page, read_answers, write_answers
from runners.audit.peaks import PACKAGES, peak_answers

PAGE = Path(__file__).parents[3] / "docs" / "peaks-audit.md"


def page() -> str:
    """The page of the kept answers."""
    by_rate = [table.package for table in TABLES.values() if table.by_rate]
    return markdown_page(read_answers(by_rate), {table.package: table.note for table in TABLES.values()})


def main() -> None:
    """Ask, if wanted, and print the page or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ask", action="store_true", help="ask the packages, and keep their answers")
    parser.add_argument("--packages", type=Path, default=PACKAGES, metavar="DIR", help="wheels and checkouts")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    if options.ask:
        write_answers(peak_answers(options.packages))
    if options.write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
