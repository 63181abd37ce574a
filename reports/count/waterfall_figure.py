"""A waterfall for each model and pass: from every counter's own number, cause by cause, to the exact count.

A step is a cause seen from the counter: what it added is taken off, what it left out is added. The first step is the
convention, where there is one, then the others from the largest to the smallest; what is left unexplained is the last.
All steps together lead to the exact count, to the last FLOP.

One lane a counter, all on one axis, so that 1.0 is one line through the picture; a bar that goes beyond the axis is cut
and its number is written. On the right the same steps are magnified, each lane as far as its own small steps need, so
that a difference of 0.01 % is seen beside one of 20 ×. Drawn from Account and AccountCause records alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cleaning.accounts.vocabulary.causes import CONVENTION
from reports.count.text import cause_sums
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import STATUS_WORDS, digits, fitting, si
from results.records.accounts import Account, AccountCause

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


UNEXPLAINED = "unexplained"

MOST_CAUSES = 6
"""Causes of one counter that have a step of their own; more than that are merged from the smallest up."""


@dataclass(frozen=True)
class WaterfallStep:
    """What one cause takes the count from and to, in native units. count: of the causes that are merged in it."""

    cause: str
    begin: Fraction
    end: Fraction
    count: int = 1

    @property
    def change(self) -> Fraction:
        """What the step adds; below 0 what it takes off."""
        return self.end - self.begin


@dataclass(frozen=True)
class Lane:
    """One counter's way. steps: empty where its number is the exact one, or where it has none."""

    account: Account
    steps: tuple[WaterfallStep, ...] = ()

    @property
    def has_total(self) -> bool:
        """Whether it has a number, and an exact one beside it to be led to."""
        return self.account.status == "ok" and self.account.unexplained_flop is not None

    @property
    def places(self) -> list[float]:
        """Where the native number and the end of each step lie, in parts of the exact count."""
        if not self.has_total or not self.account.exact_flop:
            return []
        native = Fraction(self.account.native_value or 0)
        return [float(place / self.account.exact_flop) for place in (native, *(step.end for step in self.steps))]


def lane(account: Account, causes: Iterable[AccountCause]) -> Lane:
    """The way of one account. causes: any; those of this counter and pass are taken."""
    if account.status != "ok" or account.native_value is None or account.unexplained_flop is None:
        return Lane(account)
    at = Fraction(account.native_value)
    steps = []
    for cause, flop, count in _parts(account, causes):
        steps.append(WaterfallStep(cause, at, at - flop, count))
        at -= flop
    return Lane(account, tuple(steps))


def _parts(account: Account, causes: Iterable[AccountCause]) -> list[tuple[str, Fraction, int]]:
    """(cause, what it adds to the exact count, how many causes that is), in the order of the steps."""
    mine = (each for each in causes if (each.model, each.batch_size) == (account.model, account.batch_size))
    sums = cause_sums(mine, account.counter, (account.phase,))
    ordered = sorted(sums.items(), key=lambda item: (item[0] != CONVENTION, -abs(item[1])))
    kept = [(cause, flop, 1) for cause, flop in ordered if flop]
    if len(kept) > MOST_CAUSES:
        rest = kept[MOST_CAUSES - 1 :]
        kept = kept[: MOST_CAUSES - 1] + [("", sum((flop for _, flop, _ in rest), Fraction(0)), len(rest))]
    left = Fraction(account.unexplained_flop or 0)
    return [*kept, (UNEXPLAINED, left, 1)] if left else kept


def near(lanes: Sequence[Lane], farthest: float) -> list[float]:
    """For each lane how far its last steps go from the exact count, in parts of it: of the steps that begin and end
    within `farthest`, to the end without a gap. 0: no step is so small."""
    reaches = []
    for each in lanes:
        reach = 0.0
        for place in reversed(each.places):
            if abs(place - 1) > farthest:
                break
            reach = max(reach, abs(place - 1))
        reaches.append(reach)
    return reaches


PHASES = ("forward", "backward")

FARTHEST = 0.12
"""Steps this near to the exact count are magnified, in parts of it."""

END = 2.0
"""Where the axis ends for numbers beyond it, in parts of the exact count."""

_LEAST = 1e-5
"""Smallest part of the exact count that is written as a share."""

_IN_FULL = 1000
"""Smaller whole numbers are written in full."""

_SMALL = 1e-3
"""Ratios from here up have four places after the point."""

_BELOW = -1.0
_ROW_IN = 0.135
_FRAME_IN = 1.5
_WIDTHS = (3.0, 1.7, 2.1)
_LETTERS = 36
_REASON_LETTERS = 76
_BAR = 0.68
_UNITS = {"mac": "MAC", "flop": "FLOP"}
_PLACES = {"name": 0.0, "amount": 0.77, "share": 1.0}
"""Columns of the text beside the bars, in parts of its width."""

NATIVE, CONVERTS, ADDS, TAKES = "native", "converts", "adds", "takes"

_LOOKS: dict[str, tuple[int | str, str, str]] = {
    NATIVE: ("0.45", "", "what the counter says"),
    CONVERTS: (7, "....", "a multiply-add as 2 FLOP, not as 1"),
    ADDS: (0, "", "what it counted too little, added"),
    TAKES: (1, "////", "what it counted too much, taken off"),
    UNEXPLAINED: ("#c1121f", "xxxx", "unexplained"),
}
"""Looks of bars: a place in the palette or a colour, a hatch, and what the legend says."""


def waterfalls(accounts: Sequence[Account], causes: Sequence[AccountCause]) -> dict[str, Figure]:
    """File name → figure, for every model and pass whose exact count is known and not 0. Draw and render inside
    `style.theme()`."""
    drawn: list[tuple[str, Figure]] = []
    for model, size in dict.fromkeys((account.model, account.batch_size) for account in accounts):
        for phase in PHASES:
            mine = [a for a in accounts if (a.model, a.batch_size) == (model, size)]
            here = [
                lane(account, causes)
                for account in mine
                if account.phase == phase and (account.exact_flop or account.status != "ok")
            ]
            if any(each.places for each in here):
                drawn.append((f"{model}_{phase}", _figure(here, phase, _silent(mine, phase))))
    return _named(drawn)


def _named(drawn: Iterable[tuple[str, Figure]]) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for words, figure in drawn:
        base = "waterfall_" + re.sub(r"[^a-z0-9.-]+", "_", words.lower()).strip("_.")
        name = base if base not in found else f"{base}_{len(found) + 1}"
        found[name] = figure
    return found


def _silent(accounts: Sequence[Account], phase: str) -> list[str]:
    """Counters that count another pass and not this one."""
    here = {account.counter for account in accounts if account.phase == phase}
    others = {account.counter: None for account in accounts if account.status == "ok"}
    return [counter for counter in others if counter not in here]


def _figure(lanes: Sequence[Lane], phase: str, silent: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    first = next(each.account for each in lanes if each.places)
    rows = 1 + sum(1 + len(each.steps) for each in lanes)
    figure = Figure(
        figsize=(figure_style.PAGE_IN, _FRAME_IN + (rows + 0.6 * len(lanes)) * _ROW_IN), layout="constrained"
    )
    words, whole, magnified = figure.subplots(1, 3, sharey=True, width_ratios=_WIDTHS)
    _write(words, 0.0, "exact", si(first.exact_flop or 0, "FLOP"), "1 ×", weight="bold")
    whole.barh(0.0, 1.0, _BAR, color="0.1", linewidth=0)
    y = 1.6
    for each, reach in zip(lanes, near(lanes, FARTHEST), strict=True):
        y = _lane(words, whole, magnified, each, reach, y)
    _dress(words, whole, magnified, lanes, y)
    words.set_title(f"{fitting(first.model, 40)}, batch {first.batch_size}: {phase}")
    below = (
        "from each counter's own number, cause by cause, to the exact count; shares are of the exact count",
        "on the right the last steps again, magnified to the distance that stands in their lane",
        f"no number for this pass: {', '.join(silent)}" if silent else "",
    )
    return figure_panels.finish(figure, [whole, magnified], _marks(lanes), *below)


def _lane(words: Axes, whole: Axes, magnified: Axes, each: Lane, reach: float, y: float) -> float:
    """One counter from row y down, and where the next lane begins."""
    account = each.account
    if not each.places:
        status = STATUS_WORDS.get(account.status, account.status) if account.status != "ok" else "no exact count"
        _write(words, y, account.counter, "", "", weight="bold")
        _write_reason(whole, y, f"{status}: {account.reason}".rstrip(": "))
        return y + 1.6
    exact, places = account.exact_flop or 1, each.places
    unit = _UNITS.get(account.native_unit, account.native_unit)
    _write(
        words,
        y,
        account.counter,
        si(account.native_value or 0, unit),
        _times(account.native_value or 0, exact),
        weight="bold",
    )
    _bar(whole, y, 0.0, places[0], NATIVE)
    if reach:
        _scale(magnified, y, reach)
    begin = places[0]
    for row, (step, end) in enumerate(zip(each.steps, places[1:], strict=True), 1):
        kind = _kind(step)
        red = {"color": _LOOKS[UNEXPLAINED][0], "weight": "bold"} if kind == UNEXPLAINED else {}
        _write(words, y + row, f"   {_name(step)}", _signed(step), _share(float(step.change), exact), **red)
        _step(whole, y + row, begin, end, kind)
        if reach:
            _step(magnified, y + row, (begin - 1) / reach, (end - 1) / reach, kind)
        begin = end
    return y + 1.6 + len(each.steps)


def _write_reason(whole: Axes, y: float, words: str) -> None:
    """Why there is no number, across the bars; a panel must not grow by it."""
    sentence = words if len(words) <= _REASON_LETTERS else f"{words[: _REASON_LETTERS - 1].rstrip()}…"
    look: dict[str, Any] = {"fontsize": 6, "style": "italic", "color": figure_panels.GREY, "va": "center_baseline"}
    text = whole.text(0.0, y, sentence, zorder=7, bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5}, **look)
    text.set_in_layout(False)


def _kind(step: WaterfallStep) -> str:
    if step.cause in (CONVENTION, UNEXPLAINED):
        return CONVERTS if step.cause == CONVENTION else UNEXPLAINED
    return ADDS if step.change > 0 else TAKES


def _name(step: WaterfallStep) -> str:
    words = step.cause.replace("_", " ").replace("multiply add", "multiply-add")
    return words or f"{step.count} smaller causes"


def _signed(step: WaterfallStep) -> str:
    """The change of a step with its sign; in full what is unexplained, and small whole numbers."""
    change = step.change
    in_full = change.denominator == 1 and (step.cause == UNEXPLAINED or abs(change) < _IN_FULL)
    return f"{_sign(float(change))}{f'{abs(change.numerator):,}' if in_full else si(abs(float(change)), '')}"


def _share(change: float, exact: int) -> str:
    """A change relative to the exact count: −2.2 %, and where a bar does not fit its axis −8.88 ×."""
    sign = _sign(change)
    size = abs(change) / exact
    if size >= END:
        return f"{sign}{digits(size, 3)} ×"
    return f"{sign}{digits(100 * size, 2)} %" if size >= _LEAST or not size else f"<{100 * _LEAST:g} %"


def _sign(change: float) -> str:
    return "+" if change > 0 else "−" if change < 0 else ""


def _times(native: float, exact: int) -> str:
    """What a counter says in parts of the exact count; 1 × only where it is."""
    if native == exact:
        return "1 ×"
    ratio = native / exact
    return f"{digits(ratio, 2) if ratio < _SMALL else digits(ratio, 4) if ratio >= END else f'{ratio:.4f}'} ×"


def _write(words: Axes, y: float, name: str, amount: str, share: str, **look: Any) -> None:
    """A row of the text: what, how much, and in parts of the exact count."""
    style_of = {"fontsize": 6.3, "va": "center_baseline", **look}
    words.text(_PLACES["name"], y, fitting(name, _LETTERS), ha="left", **style_of)
    words.text(_PLACES["amount"], y, amount, ha="right", **style_of)
    words.text(_PLACES["share"], y, share, ha="right", **style_of)


def _step(axes: Axes, y: float, begin: float, end: float, kind: str) -> None:
    """A floating bar, and the line down to it from the row above."""
    axes.plot([begin, begin], [y - 1 + _BAR / 2, y - _BAR / 2], color="0.45", linewidth=0.6, zorder=2)
    _bar(axes, y, begin, end, kind)


def _bar(axes: Axes, y: float, begin: float, end: float, kind: str) -> None:
    colour, hatch, _ = _look(kind)
    edge = "white" if hatch else colour
    axes.barh(y, end - begin, _BAR, begin, color=colour, hatch=hatch, edgecolor=edge, linewidth=0, zorder=3)
    axes.plot([end, end], [y - _BAR / 2, y + _BAR / 2], color=colour, linewidth=1.3, zorder=4)  # seen however small


def _scale(magnified: Axes, y: float, reach: float) -> None:
    """How far the magnified lane reaches to both sides of the exact count."""
    percent = digits(100 * reach, 2)
    look: dict[str, Any] = {"fontsize": 5.5, "color": figure_panels.GREY, "va": "center_baseline"}
    magnified.text(-1.0, y, f"−{percent} %", ha="left", **look)
    magnified.text(1.0, y, f"+{percent} %", ha="right", **look)


def _look(kind: str) -> tuple[Any, str, str]:
    colour, hatch, label = _LOOKS[kind]
    return figure_style.colour(colour), hatch, label


def _marks(lanes: Sequence[Lane]) -> list[Any]:
    """A legend of what is drawn."""
    there = {NATIVE, *(_kind(step) for each in lanes for step in each.steps)}
    looks = [_look(kind) for kind in _LOOKS if kind in there]
    return [
        figure_panels.patch(label, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)
        for colour, hatch, label in looks
    ]


def _dress(words: Axes, whole: Axes, magnified: Axes, lanes: Sequence[Lane], rows: float) -> None:
    """Axes, the line of the exact count, marks where bars are cut; rows from the top down."""
    places = [place for each in lanes for place in each.places]
    top = max([*places, 1.0])
    low = max(_BELOW, min([*places, 0.0]))
    end = END if top > END else max(1.15, 1.04 * top)
    whole.set_xlim(1.04 * low, end)
    whole.set_xticks([tick for tick in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5) if low <= tick < end])
    whole.set_xlabel("× exact", fontsize=7)
    magnified.set_xlim(-1.12, 1.12)
    magnified.set_xticks([-1, 0, 1], ["below", "exact", "above"])
    words.set_xlim(0, 1)
    words.set_ylim(rows - 1.1, -0.7)
    for axes, line in ((whole, 1.0), (magnified, 0.0)):
        axes.axvline(line, color="0.1", linewidth=0.8, zorder=5)
        axes.tick_params(labelsize=6.5)
        axes.grid(visible=False)
        axes.tick_params(axis="y", left=False, labelleft=False)
        axes.spines["left"].set_visible(False)
    words.axis("off")
    whole.set_zorder(2)  # a reason goes on over the next panel
    whole.patch.set_visible(False)
    _cuts(whole, lanes, end)


def _cuts(whole: Axes, lanes: Sequence[Lane], end: float) -> None:
    """A white stroke through each bar that is cut at the end of the axis."""
    y = 1.6
    for each in lanes:
        bars = [(0.0, place) for place in each.places[:1]] + list(zip(each.places, each.places[1:], strict=False))
        for row, bar in enumerate(bars):
            if min(bar) < end < max(bar):
                x = end - 0.12
                whole.plot([x - 0.03, x + 0.03], [y + row + 0.5, y + row - 0.5], color="white", linewidth=2.2, zorder=6)
        y += 1.6 + len(each.steps)
