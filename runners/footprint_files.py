"""What `runners.footprint --out DIR` writes: footprint.json, timeline.csv, and the timeline as PNG.

No SVG: an area of thousands of operations makes one of megabytes.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from runners.files import put

if TYPE_CHECKING:
    from reports.footprint import Answer


def write(answer: Answer, options: Namespace) -> None:
    """Every file; the picture last, so that one that fails loses no table. Raises StoreFault."""
    from reports import figures_footprint, style
    from reports.footprint import timeline_csv, to_text

    put(options.out / "footprint.json", to_text(answer, "json", options.top))
    put(options.out / "timeline.csv", timeline_csv(answer))
    with style.theme():
        drawn = style.render(figures_footprint.timeline(answer))
    put(options.out / "timeline.png", drawn["png"])
