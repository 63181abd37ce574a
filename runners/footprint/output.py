"""What `runners.footprint --out DIR` writes: footprint.json, timeline.csv, the timeline as PNG; checkpoints the same.

No SVG: an area of thousands of operations makes one of megabytes.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from runners.cli.output_files import put

if TYPE_CHECKING:
    from reports.footprint.text import Answer


def write(answer: Answer, options: Namespace) -> None:
    """Every file; the picture last, so that one that fails loses no table. Raises StoreFault."""
    from reports.footprint import checkpoints_figure, timeline_figure
    from reports.footprint.text import checkpoints_csv, timeline_csv, to_text
    from reports.shared import figure_style

    put(options.out / "footprint.json", to_text(answer, "json", options.top))
    put(options.out / "timeline.csv", timeline_csv(answer))
    if answer.checkpoints is not None:
        put(options.out / "checkpoints.csv", checkpoints_csv(answer.checkpoints))
    with figure_style.theme():
        put(options.out / "timeline.png", figure_style.render(timeline_figure.timeline(answer))["png"])
        if answer.checkpoints is not None:
            put(options.out / "checkpoints.png", figure_style.render(checkpoints_figure.curve(answer))["png"])
