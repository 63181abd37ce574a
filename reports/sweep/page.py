"""report.html of a run: everything that is reported of it in one file that needs no other, no network and no script.

Takes what `cleaning.reconcile.run` derived and figures as SVG text; writes nothing and asks no clock, so that the same
run gives the same bytes. What a page is made of is in `reports.shared.html`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cleaning.reconcile.variants import Built, devices_sentence
from reports.shared.html import MOST_ROWS, Block, PageVerdict, Part, Section, document, picture
from reports.shared.html_tables import Names, in_order, page_table
from reports.sweep import page_tables
from reports.sweep.headline import basis, closing
from reports.sweep.repeats import one_a_cell, repeat_lines, variant_table
from reports.sweep.table import heading, methods_table, methods_text, peak_lines
from results.process import collector_off

if TYPE_CHECKING:
    from results.store.manifest import Manifest


VARIANTS = "The first variant of each model and batch is the first of the lists that were asked for."

METHODS = (
    "theory: 3 × a counter's forward; one, batch, epoch: what torch.profiler recorded of one sample, one batch, one "
    "epoch, cleaned; exact: our own count of the very step. Each over its own measured time; utilization.csv has every "
    "counter, denominator and interval."
)
CLEANED = "{} changes, each a row of cleaned/cleaning_log.csv with its cell, before and after."

MOST_LETTERS, LEAST_FOR_PICTURES = 950_000, 300_000
"""Characters of a page: with more, the last pictures are left out."""


@collector_off()
def page(built: Built, figures: Mapping[str, str], manifest: Manifest | None = None) -> str:
    """The whole document. figures: name → SVG text, in the order in which they are shown.

    manifest: adds the run's name and the commands that measured it.
    """
    names = Names(built.views)
    variants = variant_table(built.variants)
    problems = ("What was wrong with the run's files; rows that it names are in no number here.", tuple(built.problems))
    told = page_tables.reasons(built, names), page_tables.warnings(built.views, names)
    changes = len(built.log)
    version, commands = (manifest.harness_version, "\n".join(manifest.commands)) if manifest else ("", "")
    how = (
        "Machine and versions of each session are in sittings.csv.",
        f"Measured by flopledger {version}." if version else "",
        Block("Measured by", commands) if commands else None,
    )
    first = (
        Section("cells", "Cells", _cells(built)),
        Section("variants", "Variants", (VARIANTS, variants) if variants else ()),
    )
    below = (
        Section("methods", "Utilization by method", _methods(built)),
        Section("failures", "Failures and warnings", told if any(told) else ("None.",)),
        Section("repeats", "Repeats", (tuple(repeat_lines(built.views)),)),
        Section("cleaning", "Cleaning", (CLEANED.format(changes) if changes else "Nothing had to be changed.",)),
        Section("environment", "Environment", how),
    )
    devices = ", ".join(dict.fromkeys(sitting.device_name or sitting.device for sitting in built.sittings))
    title = " · ".join(filter(None, ("flopledger", manifest.name if manifest else "", devices or "unknown device")))
    rest = [
        Section("problems", "Problems of files", problems if built.problems else ()),
        *(replace(section, folded=True) for section in below),
    ]
    verdict = _verdict(built)
    room = max(LEAST_FOR_PICTURES, MOST_LETTERS - len(document(title, verdict, [*first, *rest])))
    pictures = Section("figures", "Figures", _figures(built, figures, room))
    return document(title, verdict, [*first, pictures, *rest])


def _verdict(built: Built) -> PageVerdict:
    """One sentence, its intervals and peaks, and what it rests on; peaks of other cells beside them."""
    measured = [view for view in built.views if view.measured]
    short = sum(view.run.status == "not_converged" for view in measured)
    failed = len(built.views) - len(measured)
    cells = f"{len(measured)} of {len(built.views)} measured"
    cells += f", {short} of them with a wider interval than asked for" if short else ""
    cells += f"; {failed} failed" if failed else "; none failed"
    conclusion = closing(built.views)
    known, shown = peak_lines(built.views), peak_lines(conclusion.cells)
    others = tuple(line for line in known if line not in shown)
    peaks = (("Other peaks", others),) if others else () if shown else (("Peak", ("none is known",)),)
    rests_on = (("Measured on", (heading(built),)), *peaks, ("Cells", (cells,)))
    return PageVerdict(conclusion.sentence, basis(conclusion, built.views), rests_on)


def _cells(built: Built) -> Sequence[Part | None]:
    words = "used: utilization, the training step's model FLOP ÷ (its time × peak); ±: half of its 95 % interval; "
    words += "step ms: mean of the timed blocks."
    many = f"Every cell is in headline.csv; tables here have {MOST_ROWS:,} rows at most."
    return (
        words if built.views else "The run holds no cell.",
        many if len(built.views) > MOST_ROWS else "",
        devices_sentence(built.utilization),
        page_tables.measured_cells(one_a_cell(built.views, built.views)) if built.views else None,
    )


def _methods(built: Built) -> Sequence[Part | None]:
    measured = [view for view in in_order(built.views) if view.methods_denominator]
    if not measured:
        return ("No method gave a number: no cell has both a count and a peak.",)
    return (
        METHODS,
        page_table(methods_table(measured, built.work_times), methods_text(measured)),
    )


def _figures(built: Built, figures: Mapping[str, str], room: int) -> Sequence[Part]:
    pictures = [picture(name, svg) for name, svg in figures.items()]
    sizes = itertools.accumulate(len(each.uri) for each in pictures)
    shown = [each for each, letters in zip(pictures, sizes, strict=True) if letters <= room]
    text = "" if pictures else "None could be drawn from these rows."
    if left := [each.name for each in pictures[len(shown) :]]:
        text = f"Not on this page, for its size, but in figures/: {', '.join(left)}."
    return (text, devices_sentence(built.utilization) if pictures else "", *shown)
