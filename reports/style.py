"""One look for every figure: fonts, sizes, a palette safe for colour-blind readers, and files that rebuild bit for bit.

A precision keeps its colour and its marker in every figure, so that it can be told apart in grey as well.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN_IN = 3.5
"""Width of one column of a two-column page, inch."""

PAGE_IN = 7.2
"""Width of both columns, inch."""

PNG_DPI = 200
LABEL_PT = 8.5

_RC: dict[str, Any] = {
    "axes.edgecolor": "0.3",
    "axes.labelsize": LABEL_PT,
    "axes.titlesize": LABEL_PT,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.hashsalt": "flopledger",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}

_PALETTE_INDEX = {"fp32": 0, "tf32": 1, "amp-bf16": 2, "amp-fp16": 4}
_MARKERS = {"fp32": "o", "tf32": "s", "amp-bf16": "D", "amp-fp16": "^"}
_SPARE_INDICES = (3, 5, 7, 8, 9, 6)
_SPARE_MARKERS = "vPX<>h"


@contextlib.contextmanager
def theme() -> Iterator[None]:
    """Draws everything inside in the project's style; leaves the caller's own settings as they were."""
    import matplotlib as mpl
    import seaborn as sns

    with mpl.rc_context():
        sns.set_theme(context="paper", style="whitegrid", rc=_RC)
        yield


def looks(series: Sequence[str]) -> dict[str, tuple[Any, str]]:
    """Series name → (colour, marker). Precisions have their own; others take the spare ones in turn."""
    import seaborn as sns

    colours = sns.color_palette("colorblind")
    chosen, spare = {}, 0
    for name in series:
        if name in _MARKERS:
            chosen[name] = (colours[_PALETTE_INDEX[name]], _MARKERS[name])
        else:
            index = spare % len(_SPARE_INDICES)
            chosen[name] = (colours[_SPARE_INDICES[index]], _SPARE_MARKERS[index])
            spare += 1
    return chosen


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as PNG and SVG, without a date in them. Needs no display and keeps no figure open."""
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=PNG_DPI)
    figure.savefig(svg, format="svg", metadata={"Date": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}
