"""`python -m runners.report --findings`: docs/findings.md and its figure, from the runs that are published.

Reads `results/published` (or the folder that is named) and writes the page and one picture beside it; no run changes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from runners.cli import Mistake, put, say

if TYPE_CHECKING:
    from reports.findings import Published

PUBLISHED = Path("results/published")
PAGE = Path("docs/findings.md")


def write_page(folder: Path, page: Path) -> int:
    """Writes the page of the runs in `folder` and its figure; 0. Raises Mistake where there is none, StoreFault."""
    from results import Inconsistent

    try:
        text, pictures = page_and_pictures(folder, page)
    except (ValueError, Inconsistent, OSError) as fault:
        raise Mistake(str(fault)) from fault
    for name, content in pictures.items():
        put(page.parent / "images" / name, content)
    put(page, text)
    say(f"written: {page}, {page.parent / 'images'}")
    return 0


def page_and_pictures(folder: Path, page: Path) -> tuple[str, dict[str, bytes]]:
    """The page and its pictures, by name. Raises ValueError where nothing is published."""
    from reports.findings import low_utilization
    from reports.findings import page as findings_page

    runs = published(folder)
    text = findings_page.page(runs, Path(os.path.relpath(folder, page.parent)).as_posix())
    run = low_utilization.best_timed(runs)
    return text, {} if run is None else run_pictures(low_utilization.PICTURE, run)


def run_pictures(name: str, run: Published) -> dict[str, bytes]:
    """The figure of one run, as PNG and SVG."""
    from reports.findings import figure as findings_figure
    from reports.findings import traffic as findings_traffic
    from reports.shared import figure_style

    stem = name.removesuffix(".png")
    found = findings_traffic.traffic(run)
    return figure_style.render_all(lambda: {stem: findings_figure.bytes_and_utilization(found, run.device_name)})


def published(folder: Path) -> list[Published]:
    """The runs of a folder, in the order of their making. Raises ValueError where there is none."""
    from reports.findings import Published
    from results.store import MANIFEST, read_run

    paths = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    if not paths:
        raise ValueError(f"expected a folder of published runs, got {folder}, which has none: --data DIR names one")
    runs = [Published(path, read_run(path)) for path in paths]
    return sorted(runs, key=lambda run: run.data.manifest.created_at)
