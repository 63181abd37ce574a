"""report.html: everything that is told of a run in one file that needs no other, no network and no script.

Takes what `reports.build` derived and figures as SVG text; writes nothing and asks no clock, so that the same run gives
the same bytes. Each figure is an image inside the page (its own document, so that identifiers of two figures never
meet). All text comes through jinja2 with escaping on: names and reasons may hold anything.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports import page_cells, page_counts
from reports.build import Built
from reports.page_tables import Names, Table
from reports.tables import heading, peak_lines
from reports.words import closing_sentence
from results.records import Ceiling

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

    from results.manifest import Manifest

TEMPLATES = Path(__file__).resolve().parent / "templates"
TEMPLATE = "report.html.j2"

CAPTIONS: dict[str, tuple[str, str]] = {
    "utilization_by_model": ("Which model uses most of the peak, by batch size and precision", "utilization.csv"),
    "utilization_by_batch": ("How the utilization of each model changes with the batch size", "utilization.csv"),
    "utilization_by_method": ("How far the ways of counting agree on each model's utilization", "utilization.csv"),
    "utilization_by_method_post2021": (
        "The same in the arithmetic of the 2021 post, to compare with its 0.3 to 0.75",
        "utilization_post2021.csv",
    ),
    "forward_flops_by_counter": (
        "Which counter is right about the forward pass: 1 is our own count, a mark beside it too little or too much",
        "cleaned/agreement.csv",
    ),
    "backward_flops_by_counter": (
        "Which counter is right about the backward pass: 1 is our own count",
        "cleaned/agreement.csv",
    ),
    "flops_per_image_by_batch": (
        "What the profiler says an image costs, as found and as cleaned: in most models the same at each batch",
        "cleaned/profile_counts.csv",
    ),
    "profile_states": (
        "The post's three states of each profile: as kernels were given it, duplicates out, and gaps filled",
        "cleaned/profile_counts.csv",
    ),
    "flops_by_operation": (
        "Which operations the profiler counts right, too high or too low",
        "cleaned/profiled_operations.csv.gz",
    ),
    "backward_forward_by_operation": (
        "Backward ÷ forward of each kind of operation, found and cleaned",
        "cleaned/ratios.csv",
    ),
    "backward_forward_by_model": ("Backward ÷ forward of each model beside its exact value", "cleaned/ratios.csv"),
    "epoch_time_by_batch": ("How long an epoch takes at each batch size, profiled and not", "work_times.csv"),
}
"""Figure → what to see, and the file it is drawn from. A figure of several pages takes that of its first; others are
told by their name alone."""

_SIZE = re.compile(r'<svg[^>]*?\swidth="([\d.]+)pt"[^>]*?\sheight="([\d.]+)pt"')
_PX_PER_PT = 4 / 3
_AS_THEY_ARE = ' "/:;=,()!*@?$'
"""Characters that may stand in a data URI inside an HTML attribute in single quotes."""


@dataclass(frozen=True)
class Picture:
    """One figure. uri: all of it; width, height: its natural size in CSS pixels, None where the SVG does not say."""

    name: str
    caption: str
    file: str
    uri: Markup
    width: int | None
    height: int | None


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it, in this order: sentences, tables, pictures, items of a list, commands."""

    anchor: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    items: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.text or self.tables or self.pictures or self.items or self.commands)


def page(
    built: Built,
    figures: Mapping[str, str],
    *,
    manifest: Manifest | None = None,
    ceilings: Sequence[Ceiling] = (),
) -> str:
    """The whole document. figures: name → SVG text, in the order in which they are shown.

    manifest: adds the run's name and the commands that measured it. ceilings: adds every kernel that was timed.
    """
    names = Names(built.views)
    sections = [
        _cells(built),
        _methods(built, names),
        _figures(figures),
        _counters(built),
        _ratios(built, names),
        _times(built, names),
        _peaks(built, names, ceilings),
        _environment(built, manifest),
        _failures(built, names),
        _problems(built),
        _cleaning(built),
    ]
    return (
        environment()
        .get_template(TEMPLATE)
        .render(
            title=_title(built, manifest),
            sentence=closing_sentence(built.views),
            rests_on=_rests_on(built),
            sections=[section for section in sections if not section.empty],
        )
    )


def environment() -> jinja2.Environment:
    """Where every page's template is found, escaping on."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8")
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _title(built: Built, manifest: Manifest | None) -> str:
    devices = ", ".join(dict.fromkeys(sitting.device_name or sitting.device for sitting in built.sittings))
    return " · ".join(filter(None, ("flopledger", manifest.name if manifest else "", devices or "unknown device")))


def _rests_on(built: Built) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What the verdict rests on: name → lines."""
    measured = [view for view in built.views if view.measured]
    short = sum(view.run.status == "not_converged" for view in measured)
    failed = len(built.views) - len(measured)
    cells = f"{len(measured)} of {len(built.views)} measured"
    cells += f", {short} of them with a wider interval than asked for" if short else ""
    cells += f"; {failed} failed" if failed else "; none failed"
    peaks = tuple(peak_lines(built.views)) or ("none is known",)
    return (("Measured on", (heading(built),)), ("Peak", peaks), ("Cells", (cells,)))


def _cells(built: Built) -> Section:
    text = "" if built.views else "The run holds no cell."
    said = "step ms: mean of the timed blocks, ±: half of its 95 % interval; used: utilization, the training step's "
    said += "model FLOP ÷ (its time × peak)."
    return Section(
        "cells", "Cells", _said(text or said), _only(page_cells.measured_cells(built.views) if built.views else None)
    )


def _methods(built: Built, names: Names) -> Section:
    found = page_cells.methods(built.views, names)
    text = (
        "theory: 3 × a counter's forward; one, batch, epoch: what torch.profiler recorded of one sample, one batch, "
        "one epoch, cleaned; exact: our own count of the very step. Each over its own measured time."
        if found
        else "No method gave a number: no cell has both a count and a peak."
    )
    more = (
        page_cells.theories(built.views, names),
        page_cells.denominators(built.views, names),
        page_cells.post2021(built.post2021, names),
        page_cells.missing_fractions(built.views, names),
    )
    return Section("methods", "Utilization by method", _said(text), _only(found, *more))


def _figures(figures: Mapping[str, str]) -> Section:
    pictures = tuple(_picture(name, svg) for name, svg in figures.items())
    return Section(
        "figures", "Figures", () if pictures else ("None could be drawn from these rows.",), pictures=pictures
    )


def _counters(built: Built) -> Section:
    rows = built.agreement
    if not rows:
        return Section("counters", "Counters", ("No counter was asked for, or none beside our own count.",))
    text = (
        "1 means equal to the last FLOP; below another ratio stands the largest disagreement of the model's cells.",
        page_counts.laws_sentence(built.batch_laws),
        page_counts.extrapolated(built.cleaned.flop_counts),
    )
    matrices = (page_counts.agreement(rows, phase) for phase in dict.fromkeys(row.phase for row in rows))
    found = (*matrices, page_counts.disagreement(rows), page_counts.broken_laws(built.batch_laws))
    return Section("counters", "Counters side by side", _said(*text), _only(*found))


def _ratios(built: Built, names: Names) -> Section:
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
    return Section("backward", "Backward and forward", _said(text if found else ""), found)


def _times(built: Built, names: Names) -> Section:
    rows = built.work_times
    tables = (page_counts.epochs(rows, names), page_counts.works(rows, names), page_counts.missing_times(rows, names))
    found = _only(*tables)
    text = (
        "An epoch's time is its full batches' mean × their number + the last batch; profiled: the same under "
        "torch.profiler; run whole: an epoch from end to end, where that is short enough; agrees: the intervals of the "
        "two meet."
    )
    return Section("times", "Epochs, and what the profiler costs", _said(text if found else ""), found)


def _peaks(built: Built, names: Names, ceilings: Sequence[Ceiling]) -> Section:
    found = _only(
        page_cells.peaks(built.utilization),
        page_cells.missing_peaks(built.utilization, names),
        page_cells.ceilings(ceilings),
    )
    return Section("peaks", "Peaks and ceilings", () if found else ("No peak was needed.",), found)


def _environment(built: Built, manifest: Manifest | None) -> Section:
    found = _only(page_cells.environment(built.sittings))
    text = () if found else ("The run does not say what machine it was measured on.",)
    version = (f"Measured by flopledger {manifest.harness_version}.",) if manifest and manifest.harness_version else ()
    commands = manifest.commands if manifest else ()
    return Section("environment", "Environment", (*text, *version), found, commands=commands)


def _failures(built: Built, names: Names) -> Section:
    found = _only(page_cells.failures(built.views, names), page_cells.warnings(built.views, names))
    return Section("failures", "Failures and warnings", () if found else ("None.",), found)


def _problems(built: Built) -> Section:
    text = ("What was wrong with the run's files; rows that it names are in no number here.",) if built.problems else ()
    return Section("problems", "Problems of files", text, items=tuple(built.problems))


def _cleaning(built: Built) -> Section:
    found = page_counts.cleaning(built.cleaned.log)
    if found is None:
        return Section("cleaning", "Cleaning", ("Nothing had to be changed.",))
    text = f"{len(built.cleaned.log)} changes, each a row of cleaned/cleaning_log.csv with its cell, before and after. "
    text += "FLOP changed adds up all those rows, a counter's smaller batches among them."
    return Section("cleaning", "Cleaning", (text,), (found,))


def _picture(name: str, svg: str) -> Picture:
    base = max((base for base in CAPTIONS if f"{name}_".startswith(f"{base}_")), key=len, default="")
    caption, file = CAPTIONS.get(base, (f"{name.replace('_', ' ')}", "derived files"))
    return Picture(name, caption, file, data_uri(svg), *natural_size(svg))


def natural_size(svg: str) -> tuple[int | None, int | None]:
    """Width and height in CSS pixels; None where the SVG does not say."""
    size = _SIZE.search(svg)
    return (_pixels(size[1]), _pixels(size[2])) if size else (None, None)


def _pixels(points: str) -> int:
    return round(float(points) * _PX_PER_PT)


def data_uri(svg: str) -> Markup:
    """The SVG as a URI for an attribute in single quotes; without its prologue, which names a DTD on the network."""
    from markupsafe import Markup

    start = svg.find("<svg")
    body = " ".join(svg[max(start, 0) :].split())
    return Markup(
        "data:image/svg+xml," + urllib.parse.quote(body, safe=_AS_THEY_ARE)
    )  # nothing in it is left to escape


def _said(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)


def _only(*found: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in found if table is not None)
