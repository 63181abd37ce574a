"""report.html of a run: everything that is reported of it in one file that needs no other, no network and no script.

Takes what `cleaning.reconcile.run` derived and figures as SVG text; writes nothing and asks no clock, so that the same
run gives the same bytes. What a page is made of is in `reports.shared.html`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cleaning.reconcile.variants import devices_sentence
from cleaning.reconcile.view import RECORDED_METHODS, Built, View
from reports.shared import html
from reports.shared.html import MOST_ROWS, Block, PageVerdict, Part, Section, document, picture
from reports.shared.html_tables import Names, Table
from reports.shared.numbers import OF_WHAT, cell_name, fitting, percent, shared_variant, unpaired_sentence
from reports.sweep import page_cells, page_counts
from reports.sweep.headline import basis, closing
from reports.sweep.repeats import one_a_cell, repeat_lines, variant_table
from reports.sweep.table import heading, peak_lines
from results.garbage_collector import collector_off
from results.records.samples import Ceiling

if TYPE_CHECKING:
    from results.store.manifest import Manifest


_NAME_LETTERS = 60

VARIANTS = "The first variant of each model and batch is the first of the lists that were asked for."

MOST_LETTERS, LEAST_FOR_PICTURES = 950_000, 300_000
"""Characters of a page: with more, the last pictures are left out."""


@collector_off()
def page(
    built: Built,
    figures: Mapping[str, str],
    *,
    manifest: Manifest | None = None,
    ceilings: Sequence[Ceiling] = (),
) -> str:
    """The whole document. figures: name → SVG text, in the order in which they are shown.

    manifest: adds the run's name, the commands that measured it and how to cite it. ceilings: adds every kernel that
    was timed.
    """
    names = Names(built.views)
    failures = _only(page_cells.failures(built.views, names), page_cells.warnings(built.views, names))
    peaks = _only(
        page_cells.peaks(built.utilization),
        page_cells.missing_peaks(built.utilization, names),
        page_cells.ceilings(ceilings),
    )
    run = html.cited(manifest, built.sittings)
    variants = variant_table(built.variants)
    problems = ("What was wrong with the run's files; rows that it names are in no number here.", tuple(built.problems))
    first = (
        Section("cells", "Cells", _cells(built)),
        Section("variants", "Variants", (VARIANTS, variants) if variants else ()),
    )
    below = (
        Section("methods", "Utilization by method", _methods(built, names)),
        Section("counters", "Counters side by side" if built.agreement else "Counters", _counters(built)),
        Section("backward", "Backward and forward", _ratios(built, names)),
        Section("times", "Epochs, and what the profiler costs", _times(built, names)),
        Section("peaks", "Peaks and ceilings", peaks or ("No peak was needed.",)),
        Section("failures", "Failures and warnings", failures or ("None.",)),
        Section("repeats", "Repeats", (tuple(repeat_lines(built.views, built.step_times)),)),
        Section("cleaning", "Cleaning", _cleaning(built)),
        Section("environment", "Environment", _environment(built, manifest)),
        Section(
            "cite",
            "How to cite this run",
            (html.WITH_A_NUMBER, Block("In words", run.sentence), Block("As BibTeX", run.bibtex)),
        ),
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
        unpaired_sentence(built.views),
        devices_sentence(built.utilization),
        page_cells.measured_cells(one_a_cell(built.views, built.views)) if built.views else None,
    )


def _methods(built: Built, names: Names) -> Sequence[Part | None]:
    found = page_cells.methods(built.views, names)
    recorded = RECORDED_METHODS & {row.method for row in built.post2021}
    text = (
        "theory: 3 × a counter's forward; one, batch, epoch: what torch.profiler recorded of one sample, one batch, "
        "one epoch, cleaned; exact: our own count of the very step. Each over its own measured time."
        if found
        else "No method gave a number: no cell has both a count and a peak."
    )
    return (
        text,
        unpaired_sentence(built.views),
        found,
        page_cells.theories(built.views, names),
        page_cells.denominators(built.views, names),
        page_cells.post2021(built.post2021, names) if recorded else None,
        page_cells.missing_fractions(built.views, names),
    )


def _figures(built: Built, figures: Mapping[str, str], room: int) -> Sequence[Part]:
    pictures = [picture(name, svg, _seen_in(name, built.views)) for name, svg in figures.items()]
    sizes = itertools.accumulate(len(each.uri) for each in pictures)
    shown = [each for each, letters in zip(pictures, sizes, strict=True) if letters <= room]
    text = "" if pictures else "None could be drawn from these rows."
    if left := [each.name for each in pictures[len(shown) :]]:
        text = f"Not on this page, for its size, but in figures/: {', '.join(left)}."
    return (text, devices_sentence(built.utilization) if pictures else "", *shown)


def _counters(built: Built) -> Sequence[Part | None]:
    rows = built.agreement
    if not rows:
        return ("No counter was asked for, or none beside our own count.",)
    return (
        "1 means equal to the last FLOP; below another ratio stands the largest disagreement of the model's cells.",
        page_counts.laws_sentence(built.batch_laws),
        page_counts.extrapolated(built.cleaned.flop_counts),
        *(page_counts.agreement(rows, phase) for phase in dict.fromkeys(row.phase for row in rows)),
        page_counts.disagreement(rows),
        page_counts.broken_laws(built.batch_laws),
    )


def _ratios(built: Built, names: Names) -> Sequence[Part]:
    found = _only(
        page_counts.ratios(built.ratios),
        page_counts.missing_ratios(built.ratios),
        page_counts.profile_counts(built.profile_counts),
        page_counts.missing_profiles(built.profile_counts, names),
    )
    text = (
        "The rule of thumb is 2. Exact is 2 less the first layer's share of the forward pass, because nobody needs the "
        "gradient of an image."
    )
    return (text, *found) if found else ()


def _times(built: Built, names: Names) -> Sequence[Part]:
    rows = built.work_times
    tables = (page_counts.epochs(rows, names), page_counts.works(rows, names), page_counts.missing_times(rows, names))
    found = _only(*tables)
    text = (
        "An epoch's time is its full batches' mean × their number + the last batch; profiled: the same under "
        "torch.profiler; run whole: an epoch from end to end, where that is short enough; agrees: the intervals of the "
        "two meet."
    )
    return (text, *found) if found else ()


def _environment(built: Built, manifest: Manifest | None) -> Sequence[Part | None]:
    version, commands = (manifest.harness_version, "\n".join(manifest.commands)) if manifest else ("", "")
    found = page_cells.environment(built.sittings)
    return (
        "" if found else "The run does not say what machine it was measured on.",
        f"Measured by flopledger {version}." if version else "",
        found,
        Block("Measured by", commands) if commands else None,
    )


def _cleaning(built: Built) -> Sequence[Part]:
    found = page_counts.cleaning(built.cleaned.log)
    if found is None:
        return ("Nothing had to be changed.",)
    text = f"{len(built.cleaned.log)} changes, each a row of cleaned/cleaning_log.csv with its cell, before and after. "
    text += "FLOP changed adds up all those rows, a counter's smaller batches among them."
    return (text, found)


def _seen_in(name: str, views: Sequence[View]) -> str:
    """From which converged cell to which a figure of utilization goes; other figures say it by their marks."""
    ratios = [
        (view.headline.utilization_ratio or 0.0, view)
        for view in views
        if view.headline is not None and view.run.status == "ok"
    ]
    if not name.startswith("utilization_by_") or "post2021" in name or not ratios or unpaired_sentence(views):
        return ""
    shared = shared_variant(views)
    (low, worst), (high, best) = min(ratios, key=lambda cell: cell[0]), max(ratios, key=lambda cell: cell[0])
    first, last = (f"{fitting(cell_name(view, shared), _NAME_LETTERS)}" for view in (best, worst))
    of = OF_WHAT[best.headline.denominator] if best.headline is not None else ""
    return f"From {percent(high)} of {of} ({first}) down to {percent(low)} ({last})."


def _only(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(filter(None, tables))
