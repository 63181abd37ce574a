"""The texts of a figure: which are shown, and whether one covers another or leaves the page."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts(figure: Figure) -> list[Any]:
    """Every text that is shown: not empty, not invisible, and no label of a tick beyond the end of its axis."""
    figure.draw_without_rendering()
    beyond = set()
    for axes in figure.axes:
        for axis, place in ((axes.xaxis, 0), (axes.yaxis, 1)):
            low, high = sorted(axis.get_view_interval())
            labels = axis.get_ticklabels() + axis.get_ticklabels(minor=True)
            beyond |= {t for t in labels if not low <= t.get_position()[place] <= high}
    found = figure.findobj(Text)
    return [t for t in found if t.get_visible() and t.get_text().strip() and t not in beyond]


def covered(figure: Figure) -> list[str]:
    """Texts that leave the page or cover one another."""
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts(figure)]
    page, faults = figure.bbox, []
    for i, (text, box) in enumerate(boxes):
        if not (box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1):
            faults.append(f"{text!r} leaves the page")
        for other, place in boxes[:i]:
            apart = min(box.x1, place.x1) - max(box.x0, place.x0), min(box.y1, place.y1) - max(box.y0, place.y0)
            if min(apart) > 1:
                faults.append(f"{text!r} covers {other!r}")
    return faults
