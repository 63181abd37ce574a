"""Compares a paper's printed results with ours, as a page, CSV and JSON, and draws the paper's figures for any domain.

`paper_text`, `paper_csv` and `paper_document` take `PaperCell`s, one per printed result. `paper_pictures` and
`of_domain` return file name → picture. A domain says what is trained, how its error falls with data, and the target
error. The figures show growth with the parameters, sub-batches and data parallelism. Lines are exact formulas, dashes
the first-order laws fitted to the formulas, stars the target. No figure shows a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from analysis.project import domain as domains
from analysis.project import frontier, ppopp2019, ppopp2019_case_study
from analysis.project.accelerator import Accelerator, SubBatches
from analysis.project.domain import Domain, Formulas, shipped_formulas
from analysis.project.frontier import amount
from analysis.project.ppopp2019 import ASSUMED, BETWEEN, NOT, PAPERS, REPRODUCED, VERDICTS, PaperCell, count
from reports.shared import figure_panels, figure_style
from reports.shared.layout import WIDTH, HangingIndent, Part, TableColumn, TextTable, csv_text, page, strong

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = {REPRODUCED: "=", ASSUMED: "≈", NOT: "✗"}
"""Verdict → its mark in a table."""

HEAD = ("", "result", "paper", "ours", "off by", "", "note")


def deviation(value: float | None) -> str:
    """Write a deviation in per cent, or as a factor where it is large."""
    if value is None:
        return "-"
    return f"× {value + 1:.1f}" if value >= 9.995 else f"{100 * value:+.1f} %".replace("-0.0", "+0.0")


def paper_text(paper: str, cells: Sequence[PaperCell], width: int = WIDTH, colour: bool = False) -> str:
    """Return the verdicts and the tables, with their notes below."""
    numbers: dict[str, int] = {}
    parts: list[Part] = [strong(f"{PAPERS[paper]}: what it prints, and what follows from its inputs")]
    counted = count(cells)
    verdicts = "; ".join(f"{MARKS[verdict]} {verdict}: {counted[verdict]}" for verdict in VERDICTS)
    parts.append(strong(f"{len(cells)} cells. {verdicts}. Reproduced: within 2 %."))
    lines = []
    for cell in cells:
        remarks = [cell.reason] if cell.verdict == NOT else cell.assumption.split(BETWEEN)
        notes = sorted(numbers.setdefault(text, len(numbers) + 1) for text in remarks if text)
        lines.append(
            (
                cell.table,
                (
                    cell.row,
                    cell.column,
                    amount(cell.paper, cell.unit),
                    amount(cell.ours, cell.unit),
                    deviation(cell.deviation_ratio),
                    MARKS[cell.verdict],
                    ",".join(map(str, notes)),
                ),
            )
        )
    for table, group in groupby(lines, key=lambda pair: pair[0]):
        rows = [line for _, line in group]
        parts += ["", strong(table), TextTable(_COLUMNS, rows, rule=False)]
    return page([*parts, "", *(HangingIndent(f"{number:>3}", text) for text, number in numbers.items())], width, colour)


_RANKS = {"note": 1, "off by": 2}
_COLUMNS = tuple(
    TableColumn(name, right=index in (2, 3, 4), wraps=index < 2, rank=_RANKS.get(name, 0), least=12)
    for index, name in enumerate(HEAD)
)


def paper_csv(cells: Iterable[PaperCell]) -> str:
    """Return a row for each cell; unknown is empty."""
    return csv_text([field.name for field in fields(PaperCell)], (asdict(cell).values() for cell in cells))


def paper_document(paper: str, cells: Sequence[PaperCell]) -> dict[str, Any]:
    """Return one document: the paper, how many cells have which verdict, the cells."""
    return {"paper": paper, "verdicts": count(cells), "cells": [asdict(cell) for cell in cells]}


# --- figures ---------------------------------------------------------------------------------------------------------


GREY = "0.45"
GROWN = ("FLOP a sample and step", "bytes a step", "FLOP a byte", "footprint, bytes")

LEAST_PARAMETERS = 1e6
"""Models smaller than this are not drawn."""

Subjects = Sequence[tuple[Domain, Formulas]]


def paper_pictures() -> dict[str, bytes]:
    """Return file name → picture on the paper's target: growth of the five domains, sub-batches of the word model, and
    data parallelism of the case study."""
    target = ppopp2019.target_of(ppopp2019.inputs())
    subjects = [(domain, shipped_formulas()[domain.model]) for domain in map(domains.shipped, domains.ORDER)]
    return figure_style.render_all(
        lambda: {
            "growth": growth(subjects, target),
            "sub_batch": sub_batch(*subjects[0], target, word_lm=True),
            "data_parallel": data_parallel(target),
        }
    )


def of_domain(domain: Domain, formulas: Formulas, target: Accelerator) -> dict[str, bytes]:
    """Return name → picture of one domain, without the case study."""
    return figure_style.render_all(
        lambda: {
            "growth": growth([(domain, formulas)], target),
            "sub_batch": sub_batch(domain, formulas, target),
        }
    )


def growth(subjects: Subjects, target: Accelerator) -> Figure:
    """Draw FLOP, bytes, intensity and footprint against parameters, as figures 7 to 10 of the paper."""
    figure, panels, _ = figure_panels.grid(4, 2, 2.7, share_x=False, share_y=False)
    for index, (domain, formulas) in enumerate(subjects):
        colour, label = figure_style.colour(index), f"{domain.name}, {domain.sub_batch} a step"
        sizes, exact, by_law = _width_sweep(domain, formulas, target)
        for axes, line, law in zip(panels, exact, by_law, strict=True):
            axes.plot(sizes, line, color=colour, label=label)
            axes.plot(sizes, law, color=colour, linestyle=(0, (3, 2)), linewidth=0.9)
            axes.plot(sizes[-1:], line[-1:], "*", color=colour, markersize=9)
    for axes, title in zip(panels, GROWN, strict=True):
        axes.set(xscale="log", yscale="log", title=title, xlabel="parameters")
    _numbers(panels[GROWN.index("FLOP a byte")])
    panels[0].legend(loc="upper left", fontsize=6.5)
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("exact formula", {}),
        ("first-order law", {"linestyle": (0, (3, 2)), "linewidth": 0.9}),
        ("at the target error", {"marker": "*", "linestyle": ""}),
    )
    shown = [panels[3].plot([], [], color=GREY, label=label, **look)[0] for label, look in kinds]
    panels[3].legend(handles=shown, loc="upper left", fontsize=6.5)
    figure_panels.hide_spines(panels)
    return figure


def _width_sweep(
    domain: Domain, formulas: Formulas, target: Accelerator
) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Return parameters of widths up to the projected one; and the values of each of `GROWN` there, exactly and by the
    fitted laws."""
    top, batch = frontier.project(domain, formulas, target)["grown"], domain.sub_batch
    widths = sorted({max(2, round(top * 2 ** (-step / 2))) for step in range(17)})
    costs = [frontier.cost_of(domain, formulas, target, width) for width in widths]
    costs = [cost for cost in costs if cost["parameters"] >= LEAST_PARAMETERS] or costs
    laws = frontier.fit_sweep(domain, formulas, target, top).laws
    sizes = [cost["parameters"] for cost in costs]
    exact = [(c["flop"] / batch, c["moved_bytes"], c["flop"] / c["moved_bytes"], c["footprint_bytes"]) for c in costs]
    by_law = [
        (laws.gamma * p, laws.moved_bytes(p, batch), laws.intensity(p, batch), (laws.delta or math.nan) * p)
        for p in sizes
    ]
    return sizes, [list(line) for line in zip(*exact, strict=True)], [list(line) for line in zip(*by_law, strict=True)]


def sub_batch(domain: Domain, formulas: Formulas, target: Accelerator, word_lm: bool = False) -> Figure:
    """Draw intensity and time per sample over the sub-batch, as figure 11 of the paper.

    word_lm: whether the domain is the paper's word model, whose operations have rooflines of their own, too.
    """
    grown = frontier.project(domain, formulas, target)["grown"]
    sizes = sorted({round(2 ** (power / 4)) for power in range(81)})
    costs = [frontier.cost_of(domain, formulas, target, grown, size) for size in sizes]
    steps = [
        target.step(cost["flop"], cost["moved_bytes"]).time_s / size for cost, size in zip(costs, sizes, strict=True)
    ]
    figure, (above, below), _ = figure_panels.grid(2, 1, 2.2, share_x=False, share_y=False)
    above.plot(sizes, [cost["flop"] / cost["moved_bytes"] for cost in costs], color="C0")
    above.axhline(target.ridge, color=GREY, linestyle=(0, (4, 3)), linewidth=0.9)
    above.annotate("achievable ridge point", (sizes[-1], target.ridge), (0, 3), **_small_text("right"))
    below.plot(sizes, steps, color="C0", label="roofline of the whole step")
    if word_lm:
        models = [ppopp2019_case_study.plain_model({domain.model: formulas}, grown, size) for size in sizes]
        own_step_s = [model.step_s(target, None) / model.batch for model in models]
        below.plot(sizes, own_step_s, color="C1", label="each operation at its own")
        below.legend(loc="upper right")
    _marked(above, below, domain.sub_batch, frontier.batches(domain, formulas, target, grown), sizes[-1])
    above.set(xscale="log", yscale="log", ylabel="FLOP a byte", title=f"{domain.name}, {domain.grows} {grown:,}")
    below.set(xscale="log", yscale="log", ylabel="seconds a sample", xlabel="sub-batch")
    figure_panels.hide_spines([above, below])
    return figure


def _marked(above: Axes, below: Axes, chosen: int, sub_batches: SubBatches, most: int) -> None:
    """Mark sub-batches of interest as lines through both panels, named in the upper one."""
    marks = (
        ("ridge", sub_batches.ridge, "C2"),
        ("95 % of the limit", sub_batches.saturated, "C4"),
        ("chosen", chosen, "C3"),
    )
    for row, (name, size, colour) in enumerate(marks):
        if size:
            for axes in (above, below):
                axes.axvline(size, color=colour, linewidth=0.9)
            left = size < most**0.5
            above.annotate(
                f"{name}: {size:,}",
                (size, 0.03 + 0.08 * row),
                (3 if left else -3, 0),
                color=colour,
                xycoords=("data", "axes fraction"),
                **_small_text("left" if left else "right"),
            )


def data_parallel(target: Accelerator) -> Figure:
    """Draw days of an epoch and utilization over workers, as figure 12 of the paper."""
    paper, assumed = ppopp2019.inputs(), ppopp2019.assumptions()
    model = ppopp2019_case_study.model_of(paper, assumed, shipped_formulas())
    samples = ppopp2019.samples_of(ppopp2019.ROWS[0], paper, assumed) or math.nan
    workers = [2**power for power in range(15)]
    steps = [ppopp2019_case_study.data_parallel_s(model, target, count, assumed) for count in workers]
    days = [samples / model.batch / n * step / frontier.DAY_S for n, step in zip(workers, steps, strict=True)]
    shares = [100 * model.flop() / step / target.peak_flop_per_s for step in steps]
    figure, (above, below), _ = figure_panels.grid(2, 1, 2.0, share_x=False, share_y=False)
    for axes, values in ((above, days), (below, shares)):
        axes.plot(workers, values, "o-", color="C0", markersize=3)
        for row in ("data parallel 1", "data parallel 2"):
            axes.axvline(paper["Table 5", row, "workers"].value, color=GREY, linestyle=(0, (4, 3)), linewidth=0.8)
    above.axhline(paper["Section 6", "case study", "days wanted"].value, color="C3", linewidth=0.8)
    above.annotate(
        "a week", (1, paper["Section 6", "case study", "days wanted"].value), (0, 3), color="C3", **_small_text("left")
    )
    above.set(xscale="log", yscale="log", ylabel="days of an epoch", title="word model with projection, sub-batch 128")
    below.set(xscale="log", ylabel="utilization, %", xlabel="workers", ylim=(0, None))
    below.annotate("512 and 1,024", (1024, 0.06), (4, 0), xycoords=("data", "axes fraction"), **_small_text("left"))
    figure_panels.hide_spines([above, below])
    return figure


def _numbers(axes: Axes) -> None:
    """Write numbers along the vertical axis without powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _small_text(align: str) -> dict[str, Any]:
    """Return the style of small text."""
    return {"fontsize": 6.5, "ha": align, "textcoords": "offset points"}
