"""What a device reaches, drawn: square products over their size, other shapes and convolutions, memory over its size.

Points are medians, with a bar up to the fastest call; the datasheet's figure is a dashed line of its precision's
colour. Drawn from the rows of ceilings.csv; nothing is derived but the rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from analysis.profile.machine import IN_MEMORY, MOVES
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import fitting, scaled
from results.records.samples import Ceiling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from reports.ceiling.text import CeilingAnswer

SQUARES = ("square", "near")
MOST_COLUMNS = 2
_HEIGHT_IN = 2.6
_ROW_IN = 0.155
_FRAME_IN = 1.1
_DASHED = (0, (4, 3))
_LANE = 0.24
_LETTERS = 30
_ABOVE = 1.05
_MOVE_LOOKS = {"copy": ("#d55e00", "o"), "triad": ("0.2", "s")}
_PART_WORDS = {"grad_input of ": "gradient of input, ", "grad_weight of ": "gradient of weight, "}


def figures(seen: CeilingAnswer) -> dict[str, Figure]:
    """File name → figure, of what was measured. Draw and render inside `style.theme()`."""
    drawers: dict[str, Callable[[CeilingAnswer], Figure | None]] = {
        "products": _products,
        "shapes": _shapes,
        "bandwidth": _bandwidth,
    }
    drawn = {f"ceilings_{name}": draw(seen) for name, draw in drawers.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _products(seen: CeilingAnswer) -> Figure | None:
    """Square products over their side: powers of two in a line, sizes beside them as hollow points."""
    rows = [row for row in _timed_rows(seen) if row.operation == "matmul" and row.family in SQUARES]
    if not rows:
        return None
    looks, threads = _looks(rows), _threads(rows)
    figure, axes, spare = figure_panels.grid(
        len(threads), MOST_COLUMNS, _HEIGHT_IN, share_x=False, width_in=_width(threads)
    )
    for each, count in zip(axes, threads, strict=True):
        for precision, (colour, marker) in looks.items():
            mine = [row for row in rows if (row.threads, row.precision) == (count, precision)]
            for family in SQUARES:
                points = sorted((_side(row), *_rates(row)) for row in mine if row.family == family)
                line = {"linewidth": 1.2} if family == "square" else {"markerfacecolor": "white", "linewidth": 0}
                _points(each, points, color=colour, marker=marker, **line)
            _sheet(each, seen, {row.unit for row in mine}, colour)
        _size_axis(each, sorted({_side(row) for row in rows if row.family == "square"}), "side of a square product")
        _rate_axis(each, "FLOP/s", _highest(rows, seen))
        _title(each, seen, count)
    beside = figure_panels.mark("beside a power of two", color="0.3", marker="o", markerfacecolor="white")
    return figure_panels.finish(figure, axes, [*_marks(looks), beside, *_sheet_mark(seen)], spare=spare)


def _shapes(seen: CeilingAnswer) -> Figure | None:
    """Other products and convolutions, a line each: all of about equal work."""
    rows = [row for row in _timed_rows(seen) if row.flop_per_s and row.family != "near"]
    squares = [row for row in rows if row.family == "square"]
    others = [row for row in rows if row.family != "square"]
    if not others:
        return None
    alike = [row for row in squares if row.flop in {other.flop for other in others}]
    rows = [*alike, *others]
    names = list(dict.fromkeys(map(_line, sorted(rows, key=_place))))
    looks, threads = _looks(rows), _threads(rows)
    figure, axes, spare = figure_panels.grid(
        len(threads), MOST_COLUMNS, _FRAME_IN + _ROW_IN * len(names), share_x=False, width_in=figure_style.PAGE_IN
    )
    for each, count in zip(axes, threads, strict=True):
        mine = [row for row in rows if row.threads == count]
        for precision, (colour, marker) in looks.items():
            for row in (row for row in mine if row.precision == precision):
                y = names.index(_line(row)) + (_LANE if row.layout == "channels_first" else -_LANE if row.layout else 0)
                median, best = _rates(row)
                face = "white" if row.layout == "channels_first" else colour
                each.plot([median, best], [y, y], color=colour, linewidth=0.9, zorder=2)
                each.plot(median, y, color=colour, marker=marker, markersize=3.4, markerfacecolor=face, zorder=3)
            _sheet(each, seen, {row.unit for row in mine if row.precision == precision}, colour, upright=True)
        figure_panels.label_rows(each, names, fontsize=6.5)
        _rate_axis(each, "FLOP/s", _highest(rows, seen), across=True)
        _title(each, seen, count)
    marks = _marks(looks)
    if any(row.layout for row in rows):
        marks += [figure_panels.mark("channels_first", color="0.3", marker="o", markerfacecolor="white")]
    below = "median of the calls, with a bar up to the fastest one"
    return figure_panels.finish(figure, axes, [*marks, *_sheet_mark(seen)], below, spare=spare)


def _bandwidth(seen: CeilingAnswer) -> Figure | None:
    """Copy and triad over the size of an operand; to the right of the line no cache holds it."""
    rows = [row for row in seen.rows if row.operation in MOVES and row.bytes_per_s]
    if not rows:
        return None
    threads, sizes = _threads(rows), sorted({_operand_mib(row) for row in rows})
    figure, axes, spare = figure_panels.grid(
        len(threads), MOST_COLUMNS, _HEIGHT_IN, share_x=False, width_in=_width(threads)
    )
    for each, count in zip(axes, threads, strict=True):
        mine = [row for row in rows if row.threads == count]
        for operation, (colour, marker) in _MOVE_LOOKS.items():
            points = sorted((_operand_mib(row), *_rates(row)) for row in mine if row.operation == operation)
            _points(each, points, color=colour, marker=marker, linewidth=1.2)
        _size_axis(each, sizes, "MiB in an operand")
        beyond = [_operand_mib(row) for row in mine if row.family == IN_MEMORY]
        if beyond and min(beyond) > sizes[0]:
            x = min(beyond) / 2**0.5
            each.axvline(x, color="0.6", linewidth=0.8, zorder=1)
            words: dict[str, Any] = {"fontsize": 7, "color": figure_panels.GREY, "textcoords": "offset points"}
            each.annotate(
                "a cache may hold it",
                (x, 0.97),
                (-3, 0),
                ha="right",
                va="top",
                xycoords=each.get_xaxis_transform(),
                **words,
            )
        if seen.sheet_bytes_per_s:
            each.axhline(seen.sheet_bytes_per_s, color="0.3", linewidth=0.9, linestyle=_DASHED, zorder=1)
        _rate_axis(each, "B/s", _highest(rows, seen))
        _title(each, seen, count)
    marks = [*_marks(_MOVE_LOOKS), *_sheet_mark(seen, bool(seen.sheet_bytes_per_s))]
    return figure_panels.finish(figure, axes, marks, spare=spare)


def _marks(looks: figure_style.Looks) -> list[Any]:
    return [figure_panels.mark(name, color=colour, marker=marker) for name, (colour, marker) in looks.items()]


def _points(axes: Axes, points: Sequence[tuple[float, float, float]], **look: Any) -> None:
    """(x, median, fastest): points, with a thin bar up to the fastest call."""
    if not points:
        return
    xs, medians, bests = zip(*points, strict=True)
    axes.vlines(xs, medians, bests, color=look["color"], linewidth=0.8, zorder=2)
    axes.plot(xs, medians, **{"markersize": 4, "zorder": 3, **look})


def _sheet(axes: Axes, seen: CeilingAnswer, units: set[str], colour: Any, upright: bool = False) -> None:
    """The datasheet's figure of these units."""
    for unit in units & seen.sheet.peak_by_unit.keys():
        draw = axes.axvline if upright else axes.axhline
        draw(seen.sheet.peak_by_unit[unit], color=colour, linewidth=0.9, linestyle=_DASHED, zorder=1)


def _sheet_mark(seen: CeilingAnswer, there: bool | None = None) -> list[Any]:
    there = bool(seen.sheet.peak_by_unit) if there is None else there
    look = {"color": "0.3", "linewidth": 0.9, "linestyle": _DASHED}
    return [figure_panels.mark("datasheet", **look)] if there else []


def _size_axis(axes: Axes, sizes: Sequence[float], words: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel(words)


def _rate_axis(axes: Axes, unit: str, highest: float, across: bool = False) -> None:
    """From zero to a little above the highest rate, in the prefix that fits it; the same in every panel."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    scale, prefix = scaled(highest)
    axis = axes.xaxis if across else axes.yaxis
    (axes.set_xlim if across else axes.set_ylim)(0, _ABOVE * highest)
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:g}"))
    (axes.set_xlabel if across else axes.set_ylabel)(f"{prefix}{unit}")


def _title(axes: Axes, seen: CeilingAnswer, threads: int | None) -> None:
    count = [] if threads is None else [f"{threads} thread{'' if threads == 1 else 's'}"]
    axes.set_title(", ".join(filter(None, (fitting(seen.device_name, _LETTERS), *count))))


def _timed_rows(seen: CeilingAnswer) -> list[Ceiling]:
    return [row for row in seen.rows if row.status == "ok" and row.flop_per_s]


def _looks(rows: Sequence[Ceiling]) -> dict[str, tuple[Any, str]]:
    return figure_style.looks(figure_panels.in_order(row.precision for row in rows))


def _threads(rows: Sequence[Ceiling]) -> list[int | None]:
    return list(dict.fromkeys(row.threads for row in rows))


def _width(threads: Sequence[int | None]) -> float:
    return figure_style.PAGE_IN if len(threads) > 1 else figure_style.COLUMN_IN * 1.5


def _rates(row: Ceiling) -> tuple[float, float]:
    """Median and highest rate of a row."""
    work = row.flop or row.moved_bytes or 0
    median = work / row.median_s if row.median_s else 0.0
    return median, work / row.best_s if row.best_s else median


def _highest(rows: Sequence[Ceiling], seen: CeilingAnswer) -> float:
    """The highest rate of these rows' calls, and of what the datasheet prints for them."""
    units = {row.unit for row in rows}
    printed = [seen.sheet.peak_by_unit.get(unit, 0.0) if unit else seen.sheet_bytes_per_s or 0.0 for unit in units]
    return max(*(_rates(row)[1] for row in rows), *printed)


def _side(row: Ceiling) -> int:
    """1024x1024x1024 → 1024."""
    return int(row.shape.partition("x")[0])


def _operand_mib(row: Ceiling) -> int:
    return ((row.moved_bytes or 0) // {"copy": 2, "triad": 3}[row.operation]) >> 20


def _line(row: Ceiling) -> str:
    """A row's name beside the dots."""
    text = row.shape.removesuffix("s").replace(" 3x3 kernel", " kernels 3x3")
    for part, words in _PART_WORDS.items():
        text = text.replace(part, words)
    return text


def _place(row: Ceiling) -> tuple[bool, int, str, str]:
    """Products by family, then convolutions, forward before their gradients."""
    families = ("square", "area", "deep", "batch")
    family = families.index(row.family) if row.family in families else len(families)
    return row.operation != "matmul", family, row.shape.rpartition(" of ")[2], row.shape
