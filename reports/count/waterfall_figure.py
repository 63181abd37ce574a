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

from cleaning.accounts.explain import PHASES
from cleaning.accounts.items import CONVENTION
from reports.count.answer import cause_sums
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import STATUS_WORDS, digits, fitting, si
from results.records.answers import Account, AccountCause

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


def steps(account: Account, causes: Iterable[AccountCause]) -> list[WaterfallStep]:
    """The way of one account; empty where its number is the exact one, or where it has none. causes: any; those of
    this counter and pass are taken."""
    if account.status != "ok" or account.native_value is None or account.unexplained_flop is None:
        return []
    own = (cause for cause in causes if (cause.model, cause.batch_size) == (account.model, account.batch_size))
    sums = cause_sums(own, account.counter, (account.phase,))
    ordered = sorted(sums.items(), key=lambda item: (item[0] != CONVENTION, -abs(item[1])))
    parts = [(cause, flop, 1) for cause, flop in ordered if flop]
    if len(parts) > MOST_CAUSES:
        rest = parts[MOST_CAUSES - 1 :]
        parts[MOST_CAUSES - 1 :] = [("", sum((flop for _, flop, _ in rest), Fraction(0)), len(rest))]
    if account.unexplained_flop:
        parts.append((UNEXPLAINED, Fraction(account.unexplained_flop), 1))
    way, at = [], Fraction(account.native_value)
    for cause, flop, count in parts:
        way.append(WaterfallStep(cause, at, at - flop, count))
        at -= flop
    return way


END = 2.0
"""Where the axis ends for numbers beyond it, in parts of the exact count."""

_LEAST = 1e-5
"""Smallest part of the exact count that is written as a share."""

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
        own = [account for account in accounts if (account.model, account.batch_size) == (model, size)]
        for phase in PHASES:
            shown = [account for account in own if account.phase == phase and (account.exact_flop or _failed(account))]
            rows = [row for account in shown for row in bars(account, causes)]
            if not any(row.kind for row in rows):
                continue
            words = re.sub(r"[^a-z0-9.-]+", "_", f"{model}_{phase}".lower()).strip("_.")
            base = f"waterfall_{words}"
            exact = next(account.exact_flop for account in shown if account.exact_flop)
            here = {account.counter for account in own if account.phase == phase}
            others = dict.fromkeys(account.counter for account in own if not _failed(account))
            drawn[base if base not in drawn else f"{base}_{len(drawn) + 1}"] = _figure(
                [Bar("exact", si(exact, "FLOP"), 0.0, 1.0, NATIVE), *rows],
                f"{fitting(model, 40)}, batch {size}: {phase}",
                [counter for counter in others if counter not in here],
            )
    return drawn


def _failed(account: Account) -> bool:
    return account.status != "ok"


def _figure(rows: Sequence[Bar], title: str, silent: Sequence[str]) -> Figure:
    """silent: the counters that count another pass and not this one."""
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.4 + 0.145 * len(rows), width_in=figure_style.PAGE_IN)
    for y, row in enumerate(rows):
        if row.kind:
            colour, hatch, _ = _look(row.kind)
            edge = "white" if hatch else colour
            axes.barh(y, row.end - row.begin, 0.68, row.begin, color=colour, hatch=hatch, edgecolor=edge, linewidth=0)
            axes.plot([row.end, row.end], [y - 0.34, y + 0.34], color=colour, linewidth=1.3)  # seen however small
        look: dict[str, Any] = {"fontsize": 6.3, "va": "center_baseline", "textcoords": "offset points"}
        axes.annotate(row.words, (1, y), (4, 0), xycoords=axes.get_yaxis_transform(), **look)
    figure_panels.label_rows(axes, [fitting(row.name, 40) for row in rows], bars=True, fontsize=6.3)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.kind in (NATIVE, "") else "normal")
    axes.axvline(1, color="0.1", linewidth=0.8)
    places = [place for row in rows for place in (row.begin, row.end)]
    axes.set_xlim(1.04 * max(-1.0, min(places)), min(END, max(1.15, 1.04 * max(places))))
    axes.set_title(title)
    below = (
        "× exact: each counter's own number and, cause by cause, the way to the exact count",
        f"bars beyond {END:g} × are cut: their numbers stand beside them" if max(places) > END else "",
        f"no number for this pass: {', '.join(silent)}" if silent else "",
    )
    there = {row.kind for row in rows}
    marks = [
        figure_panels.patch(label, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)
        for colour, hatch, label in (_look(kind) for kind in _LOOKS if kind in there)
    ]
    return figure_panels.finish(figure, [axes], marks, *below)


def bars(account: Account, causes: Iterable[AccountCause]) -> Iterator[Bar]:
    """The rows of one counter: its own number, then its steps; why it has none."""
    exact, native = account.exact_flop, account.native_value or 0
    if _failed(account) or account.unexplained_flop is None or not exact:
        status = STATUS_WORDS.get(account.status, account.status) if _failed(account) else "no exact count"
        yield Bar(account.counter, fitting(f"{status}: {account.reason}".rstrip(": "), 34))
        return
    own = si(native, {"mac": "MAC", "flop": "FLOP"}.get(account.native_unit, account.native_unit))
    times = "1" if native == exact else digits(native / exact, 5)
    yield Bar(account.counter, f"{own}, {times} ×", 0.0, float(Fraction(native) / exact), NATIVE)
    for step in steps(account, causes):
        name = step.cause.replace("_", " ").replace("multiply add", "multiply-add") or f"{step.count} smaller causes"
        kind = {CONVENTION: CONVERTS, UNEXPLAINED: UNEXPLAINED}.get(step.cause, ADDS if step.change > 0 else TAKES)
        yield Bar(name, _change(step.change, exact), float(step.begin / exact), float(step.end / exact), kind)


def _change(change: Fraction, exact: int) -> str:
    """What a step adds or takes, small whole numbers in full, and its share of the exact count: in percent, and where a
    bar does not fit its axis in ×."""
    sign = "+" if change > 0 else "−" if change < 0 else ""
    in_full = change.denominator == 1 and abs(change) < 1000
    number = abs(change.numerator) if in_full else si(abs(float(change)), "")
    size = abs(float(change)) / exact
    if size >= END:
        share = f"{sign}{digits(size, 3)} ×"
    else:
        share = f"{sign}{digits(100 * size, 2)} %" if size >= _LEAST or not size else f"<{100 * _LEAST:g} %"
    return f"{sign}{number}, {share}"


def _look(kind: str) -> tuple[Any, str, str]:
    colour, hatch, label = _LOOKS[kind]
    return figure_style.colour(colour), hatch, label
