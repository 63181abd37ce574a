"""A waterfall for each model and pass: from every counter's own number, cause by cause, to the exact count.

A step is a cause seen from the counter: what it added is taken off, what it left out is added. The first step is the
convention, where there is one, then the others from the largest to the smallest; what is left unexplained is the last.
All steps together lead to the exact count, to the last FLOP.

One row a counter and one a step below it, all on one axis, so that 1.0 is one line through the picture. Beside each row
stands its number, so that a difference of 0.01 % can be read beside one of 20 ×; a bar beyond the axis is cut. Drawn
from Account and AccountCause records alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cleaning.accounts.vocabulary.causes import CONVENTION
from reports.count.text import cause_sums
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import STATUS_WORDS, digits, fitting, si
from results.records.accounts import Account, AccountCause

if TYPE_CHECKING:
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


PHASES = ("forward", "backward")

END = 2.0
"""Where the axis ends for numbers beyond it, in parts of the exact count."""

_LEAST = 1e-5
"""Smallest part of the exact count that is written as a share."""

_IN_FULL = 1000
"""Smaller whole numbers are written in full."""

_SMALL = 1e-3
"""Ratios from here up have four places after the point."""

_BELOW = -1.0
_ROW_IN = 0.145
_LETTERS = 40
_REASON_LETTERS = 34
_UNITS = {"mac": "MAC", "flop": "FLOP"}

NATIVE, CONVERTS, ADDS, TAKES = "native", "converts", "adds", "takes"

_LOOKS: dict[str, tuple[int | str, str, str]] = {
    NATIVE: ("0.45", "", "what the counter says"),
    CONVERTS: (7, "....", "a multiply-add as 2 FLOP, not as 1"),
    ADDS: (0, "", "what it counted too little, added"),
    TAKES: (1, "////", "what it counted too much, taken off"),
    UNEXPLAINED: ("#c1121f", "xxxx", "unexplained"),
}
"""Looks of bars: a place in the palette or a colour, a hatch, and what the legend says."""


@dataclass(frozen=True)
class Bar:
    """One row: what it is, its numbers in words, and from where to where it goes, in parts of the exact count. kind: of
    _LOOKS; "": nothing is drawn."""

    name: str
    words: str
    begin: float = 0.0
    end: float = 0.0
    kind: str = ""


def waterfalls(accounts: Sequence[Account], causes: Sequence[AccountCause]) -> dict[str, Figure]:
    """File name → figure, for every model and pass whose exact count is known and not 0. Draw and render inside
    `style.theme()`."""
    drawn: dict[str, Figure] = {}
    for model, size in dict.fromkeys((account.model, account.batch_size) for account in accounts):
        mine = [a for a in accounts if (a.model, a.batch_size) == (model, size)]
        for phase in PHASES:
            shown = [a for a in mine if a.phase == phase and (a.exact_flop or a.status != "ok")]
            lanes = [lane(account, causes) for account in shown]
            if any(each.places for each in lanes):
                words = re.sub(r"[^a-z0-9.-]+", "_", f"{model}_{phase}".lower()).strip("_.")
                base = f"waterfall_{words}"
                name = base if base not in drawn else f"{base}_{len(drawn) + 1}"
                drawn[name] = _figure(lanes, phase, _silent(mine, phase))
    return drawn


def _silent(accounts: Sequence[Account], phase: str) -> list[str]:
    """Counters that count another pass and not this one."""
    here = {account.counter for account in accounts if account.phase == phase}
    others = {account.counter: None for account in accounts if account.status == "ok"}
    return [counter for counter in others if counter not in here]


def _figure(lanes: Sequence[Lane], phase: str, silent: Sequence[str]) -> Figure:
    first = next(each.account for each in lanes if each.places)
    rows = [
        Bar("exact", si(first.exact_flop or 0, "FLOP"), 0.0, 1.0, NATIVE),
        *(b for each in lanes for b in bars(each)),
    ]
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.4 + _ROW_IN * len(rows), width_in=figure_style.PAGE_IN)
    for y, row in enumerate(rows):
        if row.kind:
            colour, hatch, _ = _look(row.kind)
            edge = "white" if hatch else colour
            axes.barh(y, row.end - row.begin, 0.68, row.begin, color=colour, hatch=hatch, edgecolor=edge, linewidth=0)
            axes.plot([row.end, row.end], [y - 0.34, y + 0.34], color=colour, linewidth=1.3)  # seen however small
        look: dict[str, Any] = {"fontsize": 6.3, "va": "center_baseline", "textcoords": "offset points"}
        axes.annotate(row.words, (1, y), (4, 0), xycoords=axes.get_yaxis_transform(), **look)
    names = [fitting(row.name, _LETTERS) for row in rows]
    figure_panels.label_rows(axes, names, bars=True, fontsize=6.3)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.kind in (NATIVE, "") else "normal")
    axes.axvline(1, color="0.1", linewidth=0.8)
    places = [0.0, 1.0, *(place for each in lanes for place in each.places)]
    axes.set_xlim(1.04 * max(_BELOW, min(places)), min(END, max(1.15, 1.04 * max(places))))
    axes.set_title(f"{fitting(first.model, 40)}, batch {first.batch_size}: {phase}")
    below = (
        "× exact: each counter's own number and, cause by cause, the way to the exact count",
        f"no number for this pass: {', '.join(silent)}" if silent else "",
    )
    there = {row.kind for row in rows}
    looks = [_look(kind) for kind in _LOOKS if kind in there]
    marks = [
        figure_panels.patch(label, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)
        for colour, hatch, label in looks
    ]
    return figure_panels.finish(figure, [axes], marks, *below)


def bars(each: Lane) -> Iterator[Bar]:
    """The rows of one counter: its own number, then its steps; why it has none."""
    account = each.account
    if not each.places:
        status = STATUS_WORDS.get(account.status, account.status) if account.status != "ok" else "no exact count"
        yield Bar(account.counter, fitting(f"{status}: {account.reason}".rstrip(": "), _REASON_LETTERS))
        return
    exact, places, native = account.exact_flop or 1, each.places, account.native_value or 0
    own = si(native, _UNITS.get(account.native_unit, account.native_unit))
    yield Bar(account.counter, f"{own}, {_times(native, exact)}", 0.0, places[0], NATIVE)
    for step, begin, end in zip(each.steps, places[:-1], places[1:], strict=True):
        name = step.cause.replace("_", " ").replace("multiply add", "multiply-add") or f"{step.count} smaller causes"
        yield Bar(name, f"{_signed(step)}, {_share(float(step.change), exact)}", begin, end, _kind(step))


def _kind(step: WaterfallStep) -> str:
    if step.cause in (CONVENTION, UNEXPLAINED):
        return CONVERTS if step.cause == CONVENTION else UNEXPLAINED
    return ADDS if step.change > 0 else TAKES


def _signed(step: WaterfallStep) -> str:
    """The change of a step with its sign; in full what is unexplained, and small whole numbers."""
    change = step.change
    in_full = change.denominator == 1 and (step.cause == UNEXPLAINED or abs(change) < _IN_FULL)
    return f"{_sign(float(change))}{f'{abs(change.numerator):,}' if in_full else si(abs(float(change)), '')}"


def _share(change: float, exact: int) -> str:
    """A change relative to the exact count: −2.2 %, and where a bar does not fit its axis −8.88 ×."""
    sign, size = _sign(change), abs(change) / exact
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


def _look(kind: str) -> tuple[Any, str, str]:
    colour, hatch, label = _LOOKS[kind]
    return figure_style.colour(colour), hatch, label
