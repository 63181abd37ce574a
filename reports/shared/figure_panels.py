"""Provides what the figures of several reports share: panels, pages, axes, intervals, texts for gaps, legends.

`grid` and `batch_panels` return a figure with its panels. `drawable` takes records and returns the table that a figure
draws. The other functions take axes and points, and draw on the axes. No function chooses which quantity is drawn, or
reads a file.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.devices.precisions import PRECISIONS
from analysis.utilization.numerators import PROFILER
from reports.shared import figure_style
from reports.shared.numbers import STATUS_TEXTS, shortened_name, variant_lines
from results.records.cell import MEASURED
from results.records.rows import Record
from results.store.layout import table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

REASON_STYLE: dict[str, Any] = {
    "fontsize": 7,
    "style": "italic",
    "textcoords": "offset points",
    "annotation_clip": False,
}
"""Style of the text that stands where a point is missing."""

GREY = "0.35"
LANE_IN = 0.086
"""Height of one series in a row of dots, in inches. It leaves room for a text where a point is missing."""

LINE_IN = 0.135
"""Height of one line of a label, in inches."""

ROW_LETTERS = 28
"""Maximum number of letters of the name of a row."""

MOST_PAGES = 8
"""Maximum number of pages of one kind of figure. A person looks at few pages, and each takes seconds to draw."""

_BATCH_MARGIN = 1.5
_MOST_TICKS = 6
_LETTERS_PER_IN = 14.5
_MARK_LETTERS = 8
_UNEVEN = 1.25
"""Factor on the number of letters in a legend's line, whose columns are as wide as their longest entry."""

_FRAME_IN = 0.9
_TITLE_LETTERS = (48, 36, 24, 20)
"""Letters that fit over a panel where one, two, three, or four and more panels are side by side."""

_LABELS_ACROSS = 7
_WIDE = 2
_OPEN = 1e3
"""Length of an interval that has no end, as a multiple of the interval's value: it reaches beyond any panel."""


def grid(
    panels: int,
    columns: int,
    height_in: float,
    *,
    share_x: bool = True,
    share_y: bool = True,
    width_in: float | None = None,
) -> tuple[Figure, list[Axes], list[Axes]]:
    """Return a figure, its panels in reading order, and spare panels; height_in: of one line of panels.

    width_in: of the figure; None: a page for several columns, less for one.
    """
    from matplotlib.figure import Figure

    columns = min(panels, columns)
    lines = math.ceil(panels / columns)
    width_in = width_in or (figure_style.COLUMN_IN * 1.35 if columns == 1 else figure_style.PAGE_IN)
    figure = Figure(figsize=(width_in, _FRAME_IN + lines * height_in), layout="constrained")
    flat = list(figure.subplots(lines, columns, sharex=share_x, sharey=share_y, squeeze=False).flat)
    for axes in flat[max(0, panels - columns) : panels]:
        axes.xaxis.set_tick_params(labelbottom=True)
    return figure, flat[:panels], flat[panels:]


def batch_panels(
    labels: Sequence[str], sizes: Sequence[int], *, share_y: bool = False, less: int = 0
) -> tuple[Figure, list[Axes], list[Axes]]:
    """Return a figure like `grid` with a panel for each label, and batch sizes across it in powers of two.

    sizes: in order; numbers that would cover one another are left out. less: as of `title`.
    """
    lines = max(label.count("\n") for label in labels)
    height_in = (2.0 if len(labels) <= 4 else 1.6) + LINE_IN * max(0, lines - 1)
    figure, panels, spare = grid(len(labels), 4, height_in, share_y=share_y)
    ticks: list[int] = []
    reach = sizes[-1] / sizes[0]
    least = min(2.0, reach ** (1 / _LABELS_ACROSS)) if reach <= 2**_LABELS_ACROSS else 4.0
    for size in reversed(sizes):
        if not ticks or ticks[-1] / size >= least:
            ticks.append(size)
    for axes, label in zip(panels, labels, strict=True):
        title(axes, label, len(labels), less)
        axes.set_xscale("log", base=2)
        # a number for each tick; for every other one, counted from the largest, where there is no room
        every = 1 if len(ticks) <= _MOST_TICKS else 2
        axes.set_xticks(ticks, [str(size) if index % every == 0 else "" for index, size in enumerate(ticks)])
        axes.set_xlim(sizes[0] / _BATCH_MARGIN, sizes[-1] * _BATCH_MARGIN)
        axes.minorticks_off()
        if min(len(labels), 4) > _WIDE and not share_y:
            axes.tick_params(axis="x", labelsize=6.5)  # numbers on the left of every panel leave less room
    return figure, panels, spare


def pages(things: Sequence[T], most: int) -> list[list[T]]:
    """Distribute things in order over as few pages as hold at most `most` each, about equally."""
    count = max(1, math.ceil(len(things) / max(1, most)))
    share, more = divmod(len(things), count)
    ends = [i * share + min(i, more) for i in range(count + 1)]
    return [list(things[start:end]) for start, end in itertools.pairwise(ends)]


def named(base: str, pages: Iterable[tuple[str, Callable[[], Figure]]]) -> dict[str, Figure]:
    """Return file name → figure: the first is `base`, each other `base` and its distinction, or its number.

    pages: distinction of each, and the function that draws it. The first `MOST_PAGES` are drawn; a line below the first
    figure says how many are not.
    """
    figures: dict[str, Figure] = {}
    every = list(pages)
    for number, (distinction, draw) in enumerate(every[:MOST_PAGES], 1):
        slug = re.sub(r"[^a-z0-9.-]+", "_", distinction.lower()).strip("_")
        name = base if number == 1 else f"{base}_{slug or number}"
        figures[name if name not in figures else f"{base}_{number}"] = draw()
    if (left := len(every) - MOST_PAGES) > 0:
        first = figures[base]
        more = f"{left} more page{'s' * (left > 1)} like this are not drawn: the tables hold every cell"
        write_below(first, *first.get_supxlabel().splitlines(), more)
    return figures


def paged(base: str, things: Sequence[T], most: int, draw: Callable[[list[T]], Figure]) -> dict[str, Figure]:
    """Return `named` figures of at most `most` things each; none without things."""
    return named(base, [("", functools.partial(draw, page)) for page in (pages(things, most) if things else [])])


def hide_spines(panels: Sequence[Axes], spare: Sequence[Axes] = ()) -> None:
    """Remove the frame above and on the right, and spare panels."""
    for axes in panels:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    for axes in spare:
        axes.remove()


def label_rows(axes: Axes, labels: Sequence[str], *, bars: bool = False, **look: Any) -> None:
    """Label the rows, the first on top, without a grid; thin lines separate rows of dots."""
    count = len(labels)
    axes.set_yticks(range(count), labels, **look)
    axes.set_ylim(*((count - 0.4, -0.6) if bars else (count - 0.5, -0.5)))
    axes.grid(axis="y", visible=False)
    edges, whole = [edge + 0.5 for edge in range(0 if bars else count - 1)], axes.get_yaxis_transform(which="grid")
    axes.hlines(edges, 0, 1, color="0.93", linewidth=0.6, zorder=0, transform=whole)


def finish(
    figure: Figure,
    panels: Sequence[Axes],
    marks: Sequence[Any],
    *below: str,
    spare: Sequence[Axes] = (),
    upwards: str = "",
) -> Figure:
    """Finish a figure: no frame, a legend above, and labels of its axes."""
    hide_spines(panels, spare)
    legend(figure, marks)
    if upwards:
        figure.supylabel(upwards, fontsize=figure_style.LABEL_PT)
    if below:
        write_below(figure, *below)
    return figure


def lanes(series: Iterable[str]) -> dict[str, float]:
    """Return series → its position above or below the middle of a row, the first on top."""
    names = list(series)
    step = 0.8 / max(1, len(names))
    return {name: (index - (len(names) - 1) / 2) * step for index, name in enumerate(names)}


def dots(axes: Axes, points: pd.DataFrame, x: str, y: str, **look: Any) -> None:
    """Draw points with the intervals `low` to `high` of `x` or `y`, whichever is named "value"; NaN is not drawn.

    An interval of which one end is unknown, or beyond a logarithmic axis, continues to the edge of the panel.
    """
    if points.empty:
        return
    value = points["value"]
    low = points["low"].where(points["low"].notna(), value.where(points["high"].isna(), value - _OPEN * value.abs()))
    high = points["high"].where(points["high"].notna(), value.where(points["low"].isna(), value + _OPEN * value.abs()))
    spans: dict[str, Any] = {"xerr" if x == "value" else "yerr": [value - low, high - value]}
    bars: dict[str, Any] = {"capsize": 1.8, "elinewidth": 1, "zorder": 3, "color": look.get("color")}
    axes.errorbar(points[x], points[y], fmt="none", **spans, **bars)  # clipped: it must not leave the panel
    axes.plot(points[x], points[y], **{"markersize": 3.6, "linestyle": "none", "zorder": 3, "clip_on": False, **look})


def status_text(status: str, otherwise: str = "unknown") -> str:
    """Return the text in place of a missing point: its status."""
    return STATUS_TEXTS.get(status, otherwise if status in MEASURED else status)


def write_word(axes: Axes, text: str, x: float, y: float, colour: Any = GREY, **look: Any) -> None:
    """Write a reason in the lane of a missing point, beginning at x."""
    style = {"va": "center_baseline", "color": colour, **REASON_STYLE, "fontsize": 5.5, **look}
    axes.annotate(text, (x, y), (3, 0), **style)


def write_reasons(axes: Axes, reasons: Sequence[tuple[float, str, Any]], series: int) -> None:
    """Write (x, text, colour), hanging from the top of a panel at x, side by side where x is the same; a text that all
    series have at one x is written once, in grey."""
    colours_of: dict[float, dict[str, list[Any]]] = {}
    for x, text, colour in reasons:
        colours_of.setdefault(x, {}).setdefault(text, []).append(colour)
    for x, texts in sorted(colours_of.items()):
        alike = {text: [GREY] if len(colours) == series > 1 else colours for text, colours in texts.items()}
        here = [(text, colour) for text, colours in alike.items() for colour in colours]
        for index, (text, colour) in enumerate(here):
            aside = (8 * (index - (len(here) - 1) / 2), -2)
            look = {"rotation": 90, "ha": "center", "va": "top", "color": colour, **REASON_STYLE}
            axes.annotate(text, (x, 1), aside, xycoords=axes.get_xaxis_transform(), **look)


def time_axis(axes: Axes, logarithmic: bool) -> None:
    """Draw seconds upwards: from zero, or if times differ by far, logarithmic with plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    if not axes.lines:  # nothing is known
        axes.set_yticks([])
    elif logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)


def mark(label: str, **look: Any) -> Any:
    """Return one entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **{"linewidth": 0, "markersize": 4, **look})


def marks_of(looks: figure_style.Looks, names: Mapping[str, str] | None = None) -> list[Any]:
    """Return an entry for each series. names: series → its label where that is not its own name."""
    called = {name: (names or {}).get(name, name) for name in looks}
    return [mark(called[name], color=colour, marker=marker) for name, (colour, marker) in looks.items()]


def patch(label: str, **look: Any) -> Any:
    """Return one entry of a legend for bars."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look)


def legend(figure: Figure, marks: Sequence[Any]) -> None:
    """Draw a legend above the panels, outside of the data, in as few lines as fit."""
    if marks:
        letters = sum(len(str(entry.get_label())) + _MARK_LETTERS for entry in marks)
        lines = math.ceil(_UNEVEN * letters / (figure.get_size_inches()[0] * _LETTERS_PER_IN))
        figure.legend(handles=marks, loc="outside upper center", ncols=math.ceil(len(marks) / lines))


def write_below(figure: Figure, *lines: str) -> None:
    """Write the meaning of the horizontal axis and of the marks; long lines are wrapped."""
    letters = int(figure.get_size_inches()[0] * _LETTERS_PER_IN)
    broken = [part for line in lines if line for part in textwrap.wrap(line, letters, break_long_words=False)]
    figure.supxlabel("\n".join(broken), fontsize=figure_style.LABEL_PT)


def worst(statuses: pd.Series[str]) -> str:
    """Return the status of a point for several cells: the first that is not a result, if there is one."""
    failed = [status for status in statuses if status not in MEASURED]
    return str((failed or list(statuses))[0])


def in_order(names: Iterable[str], order: Iterable[str] = PRECISIONS) -> list[str]:
    """Return names in the order of a literal table, unknown ones after them as they came."""
    known, unique = list(order), list(dict.fromkeys(str(name) for name in names))
    return sorted(unique, key=lambda name: known.index(name) if name in known else len(known))


def labels(points: pd.DataFrame) -> pd.Series[str]:
    """Return the model, and below it what distinguishes the cell; a part that all cells have is left out."""
    parts = points["variant"].map(lambda text: [part for part in text.split(", ") if part])
    shared = set.intersection(*map(set, parts)) if len(points) else set()
    own = parts.map(lambda own: variant_lines(", ".join(part for part in own if part not in shared)))
    return points["model"] + own.map(lambda lines: "".join(f"\n{line}" for line in lines))


def title(axes: Axes, label: str, panels: int, less: int = 0) -> None:
    """Write a label over a panel, its lines no wider than the panel.

    less: letters that the numbers left of each panel take.
    """
    letters = _TITLE_LETTERS[min(panels, len(_TITLE_LETTERS)) - 1] - less
    axes.set_title("\n".join(shortened_name(line, letters) for line in label.split("\n")))


def groups(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield (values, rows) in the order of the file."""
    yield from frame.groupby(columns[0] if len(columns) == 1 else list(columns), sort=False)


def one_source(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of only one recorder: torch.profiler's own numbers if there are any."""
    sources = list(dict.fromkeys(frame["source"]))
    chosen = PROFILER if PROFILER in sources else next(iter(sources), "")
    return frame[frame["source"] == chosen]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as plain values; unknown is None."""
    import pandas as pd

    columns = [[None if pd.isna(value) else value for value in frame[name]] for name in frame]
    return [dict(zip(frame.columns, values, strict=True)) for values in zip(*columns, strict=True)]


def distinct(values: pd.Series[float]) -> list[float]:
    """Return ratios that get marks of their own, the smallest first; those of seven equal digits are one."""
    return sorted({float(f"{value:.7g}") for value in values.dropna()})


def drawable(rows: Sequence[Record], record: type[Record], names: Collection[str] = ()) -> pd.DataFrame:
    """Return rows as a table in which names of models are drawn literally. names: of its columns, if not all."""
    frame = table(record, rows, names)
    return frame.assign(model=frame["model"].map(figure_style.label)) if "model" in frame else frame


def floats(frame: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Return the frame with these columns as floats, only for drawing; unknown is NaN."""
    import pandas as pd

    return frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce").astype("float64") for name in columns})
