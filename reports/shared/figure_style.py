"""Gives every figure one look: fonts, sizes, a palette safe for colour-blind readers, and reproducible files.

`theme` is the context to draw in. `looks` takes names of series and returns a colour and a marker (or hatch) for each.
A precision, method, phase or verdict has the same look in every figure, and can be distinguished in grey as well.
`render` takes a figure and returns it as PNG and SVG, always with the same bytes.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reports.shared.numbers import shortened_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Looks = Mapping[str, tuple[Any, str]]
"""Series → (colour, marker or hatch)."""

COLUMN_IN = 3.5
"""Width of one column of a two-column page, in inches."""

PAGE_IN = 7.2
"""Width of both columns, in inches."""

PNG_DPI = 200
LABEL_PT = 8.5
LABEL_LETTERS = 40
"""Maximum number of letters of a name at an axis: more would leave no room for the drawing."""

_RC: dict[str, Any] = {
    "axes.edgecolor": "0.3",
    "axes.labelsize": LABEL_PT,
    "axes.titley": 1.0,  # else it is looked for, which takes a sixth of the time of drawing
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

Look = tuple[int | str, str]

_LOOKS: Mapping[str, tuple[Mapping[str, Look], Sequence[Look]]] = {
    "precision": (
        {"fp32": (0, "o"), "tf32": (1, "s"), "amp-bf16": (2, "D"), "amp-fp16": (4, "^")},
        ((3, "v"), (5, "P"), (7, "X"), (8, "<"), (9, ">"), (6, "h")),
    ),
    "method": (
        {
            "theory, fvcore": (0, "v"),
            "theory, ptflops": (4, "^"),
            "one": (1, "s"),
            "batch": (2, "D"),
            "epoch": (3, "P"),
            "exact": ("0.1", "o"),
        },
        ((7, "<"), (5, ">"), (9, "h"), (8, "X")),
    ),
    "phase": ({"forward": (0, "o"), "backward": (3, "s")}, ()),
    "verdict": ({"right": (0, ""), "under": (1, "////"), "over": (3, "xxxx"), "unknown": (7, "....")}, ()),
}
"""Kind of series → its members' colours and markers (hatches of verdicts), and those of others."""


@contextlib.contextmanager
def theme() -> Iterator[None]:
    """Draw all figures within the context in the project's style; the caller's own settings are restored."""
    import matplotlib as mpl
    import seaborn as sns

    with mpl.rc_context():
        sns.set_theme(context="paper", style="whitegrid", rc=_RC)
        yield


def looks(series: Iterable[str], kind: str = "precision") -> dict[str, tuple[Any, str]]:
    """Return series → (colour, marker or hatch); series without their own get the spare ones of the kind in turn."""
    known, spare = _LOOKS[kind]
    own, others = {}, itertools.cycle(spare)
    for name in series:
        of, marker = known[name] if name in known else next(others)
        own[name] = (colour(of), marker)
    return own


@functools.lru_cache(4096)  # of a few models, for each row of a table
def label(name: str) -> str:
    """Return a name for an axis: escaped, and shortened if it is long.

    Two dollars would otherwise enclose a formula, maybe an invalid one. Two long names stay distinct: a checksum of the
    whole name follows the shown part.
    """
    if len(name) > LABEL_LETTERS:
        name = f"{shortened_name(name, LABEL_LETTERS - 6)} #{zlib.crc32(name.encode('utf-8', 'replace')) & 0xFFFF:04x}"
    return name.replace("$", r"\$")


def bar_look(colour: Any, hatch: str = "") -> dict[str, Any]:
    """Return a bar that is filled with the colour, or hatched with it."""
    if not hatch:
        return {"facecolor": colour, "edgecolor": colour, "linewidth": 0}
    return {"facecolor": "white", "edgecolor": colour, "linewidth": 0.6, "hatch": hatch}


def colour(of: int | str) -> Any:
    """Return a colour: of the palette for a number, a grey for a text."""
    import seaborn as sns

    return sns.color_palette("colorblind")[of] if isinstance(of, int) else of


def render_all(figures: Callable[[], Mapping[str, Figure]]) -> dict[str, bytes]:
    """Return file name → content of all pictures of these figures, in the project's style."""
    with theme():
        return {
            f"{name}.{ending}": content
            for name, figure in figures().items()
            for ending, content in render(figure).items()
        }


def render(figure: Figure) -> dict[str, bytes]:
    """Return the figure as PNG and SVG, without a date in them. Needs no display and keeps no figure open."""
    png, svg = io.BytesIO(), io.BytesIO()
    if (layout := figure.get_layout_engine()) is not None:  # once for both, as it takes longer than drawing
        figure.set_dpi(PNG_DPI)
        layout.execute(figure)
        figure.set_layout_engine("none")
    figure.savefig(png, format="png", dpi=PNG_DPI)
    figure.savefig(svg, format="svg", metadata={"Date": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}


BOUND_COLOURS: Mapping[str, str] = {
    "arithmetic": "#0173b2",
    "memory": "#de8f05",
    "launch": "#029e73",
    "host": "#cc78bc",
    "": "#8a929a",
}
"""Bound → colour; "": not known."""
