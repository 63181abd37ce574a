"""The tables of report.html: from derived records to rows of text, a table for each question.

Every number is written by `reports.words`. What is unknown is a dash, and why is said in a table of reasons, once, with
the cells it holds for. Nothing is calculated here but sums and ranges of what the records hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reports.build import HEADLINES, View
from reports.tables import cells_table
from reports.words import OF_WHAT, SHORT, STATUS_WORDS, digits, percent, si, si_time, variant_lines
from results.records import (
    Agreement,
    BatchLaw,
    Ceiling,
    CleaningLog,
    FlopCount,
    ProfileCount,
    Ratio,
    Sitting,
    Utilization,
    WorkTime,
)

METHOD_ORDER = ("theory", "theory_as_published", "one", "batch", "epoch", "exact")
"""Methods in the order in which they are told; those it does not name come after them."""

UNKNOWN = "–"

Cells = tuple[str, ...]
K = TypeVar("K")
V = TypeVar("V")

_UNITS = {"_bytes": "B", "_hz": "Hz", "_w": "W", "_j": "J", "_s": "s"}
_MOST_REASONS = 12


@dataclass(frozen=True)
class Table:
    """One table of the page. The first column names its row; `words` are the columns of text, the others of numbers.

    dim: indices of rows that stand back (cells that were not measured).
    """

    caption: str
    columns: Cells
    rows: tuple[Cells, ...]
    words: frozenset[str] = frozenset()
    dim: frozenset[int] = frozenset()


class Names:
    """What the cells of a run are called: model, batch and precision, and what else sets one apart."""

    def __init__(self, views: Sequence[View]) -> None:
        variants = {view.run.cell_id: next((f.variant for f in view.fractions if f.variant), "") for view in views}
        self.shared = next(iter(variants.values()), "") if len(set(variants.values())) == 1 else ""
        self._views = {view.run.cell_id: view for view in views}
        self._variants = {cell: "" if text == self.shared else text for cell, text in variants.items()}
        self.measured = frozenset(view.run.cell_id for view in views if view.measured)
        self.order = {view.run.cell_id: place for place, view in enumerate(in_order(views))}

    def columns(self, cell_id: str) -> Cells:
        """Model (with its variant on lines below), batch, precision."""
        run = self._views[cell_id].run
        repeat = f" #{run.repeat + 1}" if run.repeat else ""
        model = "\n".join((run.model + repeat, *variant_lines(self._variants[cell_id])))
        return (model, str(run.batch_size), run.precision)

    def short(self, cell_id: str) -> str:
        """A cell in a few words."""
        if cell_id not in self._views:
            return cell_id
        run, variant = self._views[cell_id].run, self._variants[cell_id]
        repeat = f" #{run.repeat + 1}" if run.repeat else ""
        return f"{run.model} b{run.batch_size} {run.precision}{repeat}{f', {variant}' if variant else ''}"

    def listed(self, cell_ids: Iterable[str]) -> str:
        """Cells in order, or all of them in a word."""
        found = set(cell_ids)
        if len(found) > 1 and found == set(self._views):
            return f"all {len(found)} cells"
        if len(found) > 1 and found == self.measured:
            return f"all {len(found)} measured cells"
        return ", ".join(self.short(cell) for cell in sorted(found, key=lambda cell: (self.order.get(cell, -1), cell)))

    def known(self, rows: Iterable[V]) -> list[V]:
        """Rows of the run's cells, in the order of the cells."""
        mine = [row for row in rows if row.cell_id in self.order]  # type: ignore[attr-defined]
        return sorted(mine, key=lambda row: self.order[row.cell_id])  # type: ignore[attr-defined]


def in_order(views: Iterable[View]) -> list[View]:
    """By model (resnet18 before resnet101), batch, precision; then as they came, which in a sweep is random."""
    return sorted(views, key=lambda view: (natural(view.run.model), view.run.batch_size, view.run.precision))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers inside names by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def measured_cells(views: Sequence[View]) -> Table:
    """The same table as at the end of a sweep, one row a cell."""
    table = cells_table(in_order(views))
    columns = tuple(str(column.header) for column in table.columns)
    rows = zip(*(map(str, column.cells) for column in table.columns), strict=True)
    dim = frozenset(index for index, row in enumerate(table.rows) if row.style)
    caption = "Time, rate and utilization of each cell's training step"
    return Table(caption, columns, tuple(rows), frozenset(("model", "precision", "verdict")), dim)


def methods(views: Sequence[View], names: Names) -> Table | None:
    """Utilization by each method and each counter, over the denominator that the cell is told by."""
    told = [(view, _denominator(view)) for view in in_order(views)]
    rows = [(view, [row for row in view.fractions if row.denominator == of]) for view, of in told if of]
    keys = _methods_in(row for _, mine in rows for row in mine)
    if not keys:
        return None
    lines = []
    for view, mine in rows:
        found = {(row.method, row.numerator_source): row for row in mine}
        of = _of(mine)
        lines.append((*names.columns(view.run.cell_id), of, *(_fraction(found.get(key)) for key in keys)))
    heads = [_method_head(key, keys) for key in keys]
    caption = "Utilization by method, with 95 % intervals of the step time"
    return Table(caption, ("model", "batch", "precision", "of", *heads), tuple(lines), _TEXT | {"of"})


def denominators(views: Sequence[View], names: Names) -> Table | None:
    """The told numerator over every denominator that is known; None where only one is."""
    told = [(view, view.headline) for view in in_order(views)]
    lines = {
        view.run.cell_id: {
            row.denominator: row
            for row in view.fractions
            if (row.method, row.numerator_source) == (head.method, head.numerator_source)
            and row.utilization_ratio is not None
        }
        for view, head in told
        if head is not None
    }
    known = [name for name in OF_WHAT if any(name in line for line in lines.values())]
    if len(known) < 2:
        return None
    rows = tuple(
        (*names.columns(cell), *(_fraction(line.get(name), peak=True) for name in known))
        for cell, line in lines.items()
    )
    heads = tuple(f"of {OF_WHAT[name]}" for name in known)
    return Table("The same FLOP and time over every peak that is known", (*_CELL, *heads), rows, _TEXT)


def missing_fractions(views: Sequence[View], names: Names) -> Table | None:
    """Why a measured cell has no ratio by a method, over the denominator that it is told by."""
    why: dict[Cells, list[str]] = {}
    for view in views:
        of = _denominator(view) or HEADLINES[-1]
        for row in view.fractions:
            if view.measured and row.denominator == of and row.utilization_ratio is None:
                key = (_method_name(row.method, row.numerator_source), row.reason or "no reason is given")
                why.setdefault(key, []).append(row.cell_id)
    return reasons("Methods without a number", ("method", "reason"), why, names)


def reasons(caption: str, heads: Cells, why: Mapping[Cells, Iterable[str]], names: Names) -> Table | None:
    """A row for each reason, with its cells at the end; None without any."""
    rows = tuple((*key, names.listed(cells)) for key, cells in why.items())
    columns = (*heads, "cells")
    return Table(caption, columns, rows, frozenset(columns)) if rows else None


def failures(views: Sequence[View], names: Names) -> Table | None:
    """Cells that were not measured, by status and reason; those that were, but have no ratio."""
    why: dict[Cells, list[str]] = {}
    for view in in_order(views):
        status = view.run.status
        if not view.measured:
            key = (STATUS_WORDS.get(status, status), view.run.reason or "no reason is given")
            why.setdefault(key, []).append(view.run.cell_id)
        elif view.headline is None:
            said = "; ".join(dict.fromkeys(row.reason for row in view.fractions if row.reason))
            why.setdefault(("no utilization", said or "no method was asked for"), []).append(view.run.cell_id)
    return reasons("What could not be measured", ("what", "reason"), why, names)


def warnings(views: Sequence[View], names: Names) -> Table | None:
    """Every warning once, with the cells that have it."""
    why: dict[Cells, list[str]] = {}
    for view in in_order(views):
        marks = (*view.run.warnings, *(mark for row in view.fractions for mark in row.warnings))
        not_converged = [f"not_converged: {view.run.reason}"] if view.run.status == "not_converged" else []
        for mark in dict.fromkeys((*not_converged, *marks)):
            code, colon, text = mark.partition(": ")
            key = (code, text) if colon else ("", mark)
            why.setdefault(key, []).append(view.run.cell_id)
    return reasons("What to know before using these numbers", ("code", "warning"), why, names)


def agreement(rows: Sequence[Agreement], phase: str) -> Table | None:
    """Counter × model: its FLOP ÷ our own, and below it how far apart they are."""
    mine = [row for row in rows if row.phase == phase]
    counters = list(dict.fromkeys(row.counter for row in mine))
    models = sorted({row.model for row in mine}, key=natural)
    found = _grouped(mine, lambda row: (row.model, row.counter))
    lines = tuple((model, *(_agreed(found.get((model, counter), [])) for counter in counters)) for model in models)
    caption = f"{phase.capitalize()}: FLOP of each counter's convolutions and matrix products ÷ our own count"
    return Table(caption, ("model", *counters), lines, frozenset(("model",))) if lines else None


def disagreement(rows: Sequence[Agreement]) -> Table | None:
    """Why a counter has no number, or another one than ours: reason, counter, phase, models."""
    why: dict[Cells, list[str]] = {}
    for row in rows:
        if row.reason:
            status = "differs" if row.status == "ok" else STATUS_WORDS.get(row.status, row.status)
            why.setdefault((row.counter, row.phase, status, row.reason), []).append(row.model)
    lines = tuple((*key, _models(models)) for key, models in why.items())
    columns = ("counter", "phase", "what", "reason", "models")
    return Table("Why counters fail or differ", columns, lines, frozenset(columns)) if lines else None


def broken_laws(laws: Sequence[BatchLaw]) -> Table | None:
    """Counters whose number is not slope · batch + constant, and the operator that breaks it."""
    why: dict[Cells, list[str]] = {}
    for law in laws:
        if law.holds is False:
            batches = ", ".join(map(str, law.batches))
            key = (law.counter, law.phase, law.operator or law.scope, batches, law.reason)
            why.setdefault(key, []).append(law.model)
    lines = tuple((*key, _models(models)) for key, models in why.items())
    columns = ("counter", "phase", "of", "batches", "reason", "models")
    return (
        Table("Counts that are not an affine law in the batch", columns, lines, frozenset(columns)) if lines else None
    )


def laws_sentence(laws: Sequence[BatchLaw]) -> str:
    """How many of the totals follow a law, and how many could not be judged."""
    totals = [law for law in laws if law.scope == "total" and not law.operator]
    if not totals:
        return ""
    found = Counter(law.holds for law in totals)
    constant = sorted({law.model for law in totals if law.constant_flop}, key=natural)
    parts = [f"Of {len(totals)} totals of counters, {found[True]} are slope · batch + constant in the batch size"]
    parts += [f"{found[False]} break that law"] if found[False] else []
    parts += [f"{found[None]} have too few batches to tell"] if found[None] else []
    also = f" The constant is not zero in {', '.join(constant)}." if constant else ""
    return f"{', '.join(parts)}.{also}"


def ratios(rows: Sequence[Ratio]) -> Table | None:
    """Model × source: backward ÷ forward as found and as cleaned, beside the model's exact value."""
    mine = [row for row in rows if row.level == "model"]
    sources = list(dict.fromkeys((row.source, row.work) for row in mine if _any_ratio(mine, row)))
    models = sorted({row.model for row in mine}, key=natural)
    found = _grouped(mine, lambda row: (row.model, row.source, row.work))
    lines = []
    for model in models:
        exact = [row.exact_ratio for row in mine if row.model == model]
        cells = (_found_and_cleaned(found.get((model, *source), [])) for source in sources)
        lines.append((model, _span(exact, _four), *cells))
    heads = (f"{source}\n{work}" if work else source for source, work in sources)
    caption = "FLOP of backward ÷ FLOP of forward: as found → as cleaned, where they differ"
    return Table(caption, ("model", "exact", *heads), tuple(lines), frozenset(("model",))) if sources else None


def missing_ratios(rows: Sequence[Ratio]) -> Table | None:
    """Why a model has no backward/forward ratio from a source."""
    why: dict[Cells, list[str]] = {}
    for row in rows:
        if row.level == "model" and row.ratio is None and row.reason:
            why.setdefault((row.source, row.work or "count", row.state, row.reason), []).append(row.model)
    lines = tuple((*key, _models(models)) for key, models in why.items())
    columns = ("source", "work", "state", "reason", "models")
    return Table("Ratios that are not known", columns, lines, frozenset(columns)) if lines else None


def profile_counts(rows: Sequence[ProfileCount], names: Names) -> Table | None:
    """FLOP an image of the largest recorded work of each cell, as found, as cleaned and exact, by phase."""
    works = _grouped(names.known(rows), lambda row: row.cell_id)
    lines = []
    for cell, mine in works.items():
        work = next(name for name in ("batch", "one", *(row.work for row in mine)) if any(r.work == name for r in mine))
        by_phase = {row.phase: row for row in mine if row.work == work}
        repairs = [sum(count) for count in zip(*(_repairs(row) for row in by_phase.values()), strict=True)]
        counts = (text for phase in ("forward", "backward") for text in _an_image(by_phase.get(phase)))
        lines.append((*names.columns(cell), work, *counts, *map(str, repairs)))
    heads = (f"{phase}\n{state}" for phase in ("forward", "backward") for state in ("found", "cleaned", "exact"))
    columns = (*_CELL, "work", *heads, "products", "duplicates", "repaired", "unknown")
    caption = "FLOP an image in the profile, and what cleaning did to its products"
    return Table(caption, columns, tuple(lines), _TEXT | {"work"}) if lines else None


def epochs(rows: Sequence[WorkTime], names: Names) -> Table | None:
    """How long an epoch takes: from batches that were timed, under the profiler, and run from end to end."""
    return _times([row for row in names.known(rows) if row.work == "epoch"], names, "An epoch", epoch=True)


def works(rows: Sequence[WorkTime], names: Names) -> Table | None:
    """How long one sample, a batch and the last batch take, profiled and not."""
    caption = "One sample (forward and backward), one batch and the epoch's last one"
    return _times([row for row in names.known(rows) if row.work != "epoch"], names, caption, epoch=False)


def peaks(rows: Sequence[Utilization]) -> Table | None:
    """What was divided by, each peak once with its source; peaks of mixed units differ by model, shown from to."""
    found = _grouped(
        [row for row in rows if row.peak_flop_per_s is not None],
        lambda row: (row.precision, row.denominator, row.peak_source),
    )
    lines = tuple(
        (OF_WHAT.get(of, of), precision, _span([row.peak_flop_per_s for row in mine], _flop_per_s), source)
        for (precision, of, source), mine in sorted(found.items(), key=lambda item: (item[0][0], _place(item[0][1])))
    )
    columns = ("denominator", "precision", "FLOP/s", "source")
    return Table("Peaks that were divided by", columns, lines, frozenset(columns) - {"FLOP/s"}) if lines else None


def missing_peaks(rows: Sequence[Utilization], names: Names) -> Table | None:
    """Why a denominator is not known."""
    why: dict[Cells, list[str]] = {}
    for row in rows:
        if row.peak_flop_per_s is None and row.model_flop is not None and row.time_s is not None and row.reason:
            why.setdefault((OF_WHAT.get(row.denominator, row.denominator), row.reason), []).append(row.cell_id)
    return reasons("Peaks that are not known", ("denominator", "reason"), why, names)


def ceilings(rows: Sequence[Ceiling]) -> Table | None:
    """Every kernel that was timed, the fastest of its unit first."""
    ranked = sorted(rows, key=lambda row: (row.sitting, row.device, row.precision, row.unit, -(row.flop_per_s or 0.0)))
    lines = tuple(
        (
            " ".join(filter(None, (row.operation, row.shape, row.layout))),
            row.precision,
            row.unit,
            UNKNOWN if row.median_s is None else si_time(row.median_s),
            UNKNOWN if row.flop_per_s is None else si(row.flop_per_s, "FLOP/s"),
            row.reason if row.status != "ok" else "",
            row.sitting,
        )
        for row in ranked
    )
    columns = ("kernel", "precision", "unit", "median time", "rate", "reason", "sitting")
    text = frozenset(("kernel", "precision", "unit", "reason", "sitting"))
    return Table("Kernels timed alone: the fastest of a unit is its ceiling", columns, lines, text) if lines else None


def environment(sittings: Sequence[Sitting]) -> Table | None:
    """A column for each sitting; what no sitting knows is left out."""
    facts = [_facts(sitting) for sitting in sittings]
    keys = dict.fromkeys(key for mine in facts for key in mine)
    lines = tuple(
        (key, *(mine.get(key) or UNKNOWN for mine in facts)) for key in keys if any(mine.get(key) for mine in facts)
    )
    columns = ("", *(f"sitting {sitting.sitting}" for sitting in sittings))
    return Table("Machine and versions of each sitting", columns, lines, frozenset(columns)) if lines else None


def cleaning(log: Sequence[CleaningLog]) -> Table | None:
    """The log by step and reason: how many changes, and how many FLOP they took out or added, all rows together."""
    groups = _grouped(log, lambda row: (row.step, row.file, row.reason))
    lines: list[Cells] = []
    for step, file in dict.fromkeys((step, file) for step, file, _ in groups):
        mine = [(reason, rows) for (s, f, reason), rows in groups.items() if (s, f) == (step, file)]
        mine.sort(key=lambda item: -len(item[1]))
        shown = mine[:_MOST_REASONS]
        lines += [(step, file, reason, str(len(rows)), _change(rows)) for reason, rows in shown]
        if rest := [row for _, rows in mine[_MOST_REASONS:] for row in rows]:
            reason = f"{len(mine) - _MOST_REASONS} other reasons, each rarer"
            lines.append((step, file, reason, str(len(rest)), _change(rest)))
    columns = ("step", "file", "reason", "changes", "FLOP changed")
    text = frozenset(columns) - {"changes", "FLOP changed"}
    return Table("What cleaning changed", columns, tuple(lines), text) if lines else None


def extrapolated(counts: Sequence[FlopCount]) -> str:
    """Which counters' larger batches were not counted but follow from smaller ones."""
    found = sorted({row.counter for row in counts if row.extrapolated})
    return f"Counts of larger batches follow from smaller ones by an affine law: {', '.join(found)}." if found else ""


_CELL = ("model", "batch", "precision")
_TEXT = frozenset(("model", "precision"))


def _denominator(view: View) -> str:
    """What the cell is told by; of a cell without a headline the first that any method has; else empty."""
    if view.headline is not None:
        return view.headline.denominator
    known = {row.denominator for row in view.fractions if row.utilization_ratio is not None}
    return next((name for name in HEADLINES if name in known), "")


def _methods_in(rows: Iterable[Utilization]) -> list[tuple[str, str]]:
    """(method, source) that have a ratio anywhere, in the order in which they are told."""
    found = dict.fromkeys((row.method, row.numerator_source) for row in rows if row.utilization_ratio is not None)
    order = {name: place for place, name in enumerate(METHOD_ORDER)}
    return sorted(found, key=lambda key: order.get(key[0], len(order)))


def _method_name(method: str, source: str) -> str:
    return f"{method.replace('_', ' ')}, {source}" if source else method.replace("_", " ")


def _method_head(key: tuple[str, str], keys: Sequence[tuple[str, str]]) -> str:
    """The method alone where it has one source, else with it."""
    method = key[0].replace("_", " ")
    return f"{method}\n{key[1]}" if sum(other[0] == key[0] for other in keys) > 1 else method


def _of(rows: Sequence[Utilization]) -> str:
    """Peak and its kind, as in the table of cells."""
    head = next((row for row in reversed(rows) if row.peak_flop_per_s is not None), None)
    return UNKNOWN if head is None else f"{si(head.peak_flop_per_s or 0.0, 'FLOP/s')} {SHORT[head.denominator]}"


def _fraction(row: Utilization | None, peak: bool = False) -> str:
    """A ratio, below it its interval; peak: and what it is of."""
    if row is None or row.utilization_ratio is None:
        return UNKNOWN
    low, high = row.utilization_low_ratio, row.utilization_high_ratio
    lines = [f"{digits(100 * row.utilization_ratio)} %"]
    if low is not None and high is not None:
        lines.append(f"{digits(100 * low)} to {digits(100 * high)}")
    if peak and row.peak_flop_per_s is not None:
        lines.append(f"of {si(row.peak_flop_per_s, 'FLOP/s')}")
    return "\n".join(lines)


def _grouped(rows: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _models(models: Iterable[str]) -> str:
    return ", ".join(sorted(set(models), key=natural))


def _span(values: Iterable[float | None], write: Callable[[float], str]) -> str:
    """One text, or from the smallest to the largest."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return UNKNOWN
    low, high = write(known[0]), write(known[-1])
    return low if low == high else f"{low} to {high}"


def _four(value: float) -> str:
    return digits(value, 4)


def _flop_per_s(value: float) -> str:
    return si(value, "FLOP/s")


def _signed(flop: int) -> str:
    return f"{'−' if flop < 0 else '+'}{si(abs(flop), 'FLOP')}"


def _agreed(rows: Sequence[Agreement]) -> str:
    """The ratio over a model's cells, and the largest disagreement with its batch; "1" is equal to the last FLOP."""
    known = [row for row in rows if row.ratio is not None]
    if not known:
        return STATUS_WORDS.get(rows[0].status, "unknown") if rows else UNKNOWN
    if all(row.difference_flop == 0 for row in known):
        return "1"
    worst = max(known, key=lambda row: abs((row.ratio or 0.0) - 1))
    lines = [_span([row.ratio for row in known], _four)]
    if worst.difference_flop is not None:
        lines.append(f"{_signed(worst.difference_flop)} at batch {worst.batch_size}")
    return "\n".join(lines)


def _any_ratio(rows: Sequence[Ratio], like: Ratio) -> bool:
    return any(row.ratio is not None for row in rows if (row.source, row.work) == (like.source, like.work))


def _found_and_cleaned(rows: Sequence[Ratio]) -> str:
    """ "0.961 → 1.996", or one of them where they are the same."""
    found, cleaned = (_span([row.ratio for row in rows if row.state == state], _four) for state in ("found", "cleaned"))
    if UNKNOWN in (found, cleaned):
        return cleaned if found == UNKNOWN else f"{found} → {UNKNOWN}"
    return found if found == cleaned else f"{found} → {cleaned}"


def _an_image(row: ProfileCount | None) -> tuple[str, str, str]:
    """Found, cleaned and exact FLOP of one item."""
    if row is None:
        return (UNKNOWN,) * 3
    found, cleaned, exact = (
        UNKNOWN if flop is None or not row.items else si(flop / row.items, "FLOP")
        for flop in (row.found_flop, row.cleaned_flop, row.exact_flop)
    )
    return found, cleaned, exact


def _repairs(row: ProfileCount) -> tuple[int, int, int, int]:
    return row.operations, row.removed, row.repaired, row.unknown


def _times(rows: Sequence[WorkTime], names: Names, caption: str, epoch: bool) -> Table | None:
    """A row for each time; what a real epoch took only where one can be run."""
    lines = []
    for row in rows:
        of = (*names.columns(row.cell_id), *(() if epoch else (row.work,)))
        size = (_whole(row.items), _whole(row.steps))
        overhead = UNKNOWN if row.overhead_ratio is None else percent(row.overhead_ratio)
        times = (
            _time(row.time_s, row.low_s, row.high_s),
            _time(row.profiled_time_s, row.profiled_low_s, row.profiled_high_s),
        )
        real = (_time(row.real_time_s, row.real_low_s, row.real_high_s), _yes(row.agrees)) if epoch else ()
        lines.append((*of, *size, *times, overhead, *real, row.reason))
    work = () if epoch else ("work",)
    run = ("run whole", "agrees") if epoch else ()
    columns = (*_CELL, *work, "images", "steps", "time", "profiled", "overhead", *run, "reason")
    return Table(caption, columns, tuple(lines), _TEXT | {"work", "agrees", "reason"}) if lines else None


def _time(mean_s: float | None, low_s: float | None, high_s: float | None) -> str:
    if mean_s is None:
        return UNKNOWN
    return (
        si_time(mean_s)
        if low_s is None or high_s is None
        else f"{si_time(mean_s)}\n{si_time(low_s)} to {si_time(high_s)}"
    )


def _whole(count: int | None) -> str:
    return UNKNOWN if count is None else str(count)


def _yes(answer: bool | None) -> str:
    return UNKNOWN if answer is None else "yes" if answer else "no"


def _place(denominator: str) -> int:
    names = list(OF_WHAT)
    return names.index(denominator) if denominator in names else len(names)


def _facts(sitting: Sitting) -> dict[str, str]:
    """What is known of a sitting, by name; empty where it is not."""
    first = {
        "device": " ".join(filter(None, (sitting.device_name, f"({sitting.device})"))),
        "driver": sitting.driver,
        "torch": sitting.torch_version,
        "started at": sitting.started_at,
        "host": sitting.host,
        "row of peaks.csv": sitting.peak_row,
    }
    said = {"device", "driver", "torch", "host"}
    host = {key: _fact(key, value) for key, value in sitting.environment.items() if key not in said}
    before = {f"before the run: {key}": _fact(key, value) for key, value in sitting.preflight.items()}
    return {**first, **host, **before}


def _fact(key: str, value: Any) -> str:
    """A value of the environment as text: flags by their names, quantities with their unit, unknown as empty."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        flags = all(isinstance(item, bool) for item in value.values())
        parts = (name if flags else f"{name}={_fact(name, item)}" for name, item in value.items() if item or not flags)
        return ", ".join(parts) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(_fact(key, item) for item in value)
    unit = next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "")
    return si(value, unit) if unit and isinstance(value, (int, float)) else str(value)


def _change(rows: Sequence[CleaningLog]) -> str:
    """FLOP after - FLOP before, all rows together; a dash where no row is about FLOP."""
    changes = [_flop(row.after) - _flop(row.before) for row in rows if row.field.endswith("flop")]
    return _signed(sum(changes)) if changes else UNKNOWN


def _flop(text: str) -> int:
    return int(text) if text.lstrip("-").isdigit() else 0
