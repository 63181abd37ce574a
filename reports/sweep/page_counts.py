"""The tables of report.html about counts and times: counters, backward ÷ forward, profiles, epochs, cleaning.

From derived records to rows of text. Nothing is calculated but sums, ranges and FLOP an image.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence

from analysis.utilization.numerators import PROFILER
from reports.shared.html_tables import (
    CELL,
    WORDS,
    Cells,
    Names,
    Table,
    grouped,
    models_listed,
    natural,
    reasons,
    reasons_of_models,
    span,
)
from reports.shared.numbers import DASH, STATUS_WORDS, digits, listed, merged, percent, si, si_time, skeleton
from results.records.answers import WorkTime
from results.records.counts import Agreement, BatchLaw, CleaningLog, FlopCount, ProfileCount, Ratio
from results.records.vocabulary import WHOLE

_STATES = ("found", "cleaned", "exact")
_CLEANED = ("operations", "removed", "repaired", "unknown")
_MOST_CALLS = 4
_four = functools.partial(digits, count=4)
_flop_text = functools.partial(si, unit="FLOP")
_MOST_REASONS = 12
"""Reasons that the summary of the cleaning log names, for each step and file."""


def agreement(rows: Sequence[Agreement], phase: str) -> Table | None:
    """Counter × model: its FLOP ÷ our own, and below it how far apart they are."""
    mine = [row for row in rows if row.phase == phase]
    counters = list(dict.fromkeys(row.counter for row in mine if row.ratio is not None))
    models = sorted({row.model for row in mine}, key=natural)
    found = grouped(mine, lambda row: (row.model, row.counter))
    lines = tuple((model, *(_agreed(found.get((model, counter), [])) for counter in counters)) for model in models)
    caption = f"{phase.capitalize()}: FLOP of each counter's convolutions and matrix products ÷ our own count"
    return Table(caption, ("model", *counters), lines, frozenset(("model",))) if counters else None


def disagreement(rows: Sequence[Agreement]) -> Table | None:
    """Why a counter has no number, or another one than ours; reasons that differ in their numbers alone are one."""
    why: dict[Cells, list[tuple[str, str]]] = {}
    for row in rows:
        if reason := _reason(row):
            status = "differs" if row.status == "ok" else STATUS_WORDS.get(row.status, row.status)
            why.setdefault((row.counter, row.phase, status, skeleton(reason)), []).append((reason, row.model))
    merged_why = {
        (*key[:3], merged([reason for reason, _ in same])): [model for _, model in same] for key, same in why.items()
    }
    return reasons_of_models("Why counters fail or differ", ("counter", "phase", "what", "reason"), merged_why, rows)


def _reason(row: Agreement) -> str:
    """What a counter says of itself; where its products are not ours also what it has no rule for, if it names any."""
    parts = [row.reason] if row.reason else []
    if row.difference_flop:
        names, much = list(row.not_understood), "much" if row.difference_flop > 0 else "little"
        lacks = f"it has no rule for {listed(names, _MOST_CALLS)}"
        parts.append(lacks if names else f"it counts too {much} and does not say where")
    return "; ".join(parts)


def broken_laws(laws: Sequence[BatchLaw]) -> Table | None:
    """Counters whose number is not slope · batch + constant, and the operator that breaks it."""
    why: dict[Cells, list[str]] = {}
    for law in laws:
        if law.holds is False:
            batches = ", ".join(map(str, law.batches))
            key = (law.counter, law.phase, law.operator or law.scope, batches, law.reason)
            why.setdefault(key, []).append(law.model)
    heads = ("counter", "phase", "of", "batches", "reason")
    return reasons_of_models("Counts that are not an affine law in the batch", heads, why, laws)


def laws_sentence(laws: Sequence[BatchLaw]) -> str:
    """How many of the totals follow a law, and how many could not be judged."""
    totals = [law for law in laws if law.scope == WHOLE and not law.operator]
    if not totals:
        return ""
    found = Counter(law.holds for law in totals)
    constant = grouped((law for law in totals if law.constant_flop), lambda law: law.counter)
    answers = {True: "yes", False: "no", None: "with too few batches"}
    parts = [f"{found[answer]} {words}" for answer, words in answers.items() if found[answer]]
    where = (
        f"for {counter} in {models_listed((law.model for law in mine), totals)}" for counter, mine in constant.items()
    )
    also = f" The constant is not zero {'; '.join(where)}." if constant else ""
    return f"Totals of counters as slope · batch + constant in the batch size: {', '.join(parts)}.{also}"


def ratios(rows: Sequence[Ratio]) -> Table | None:
    """Model × source: backward ÷ forward as found and as cleaned, beside the model's exact value."""
    mine = [row for row in rows if row.level == "model"]
    sources = list(dict.fromkeys((row.source, row.work) for row in mine if row.ratio is not None))
    models = sorted({row.model for row in mine}, key=natural)
    found = grouped(mine, lambda row: (row.model, row.source, row.work))
    lines = []
    for model in models:
        exact = [row.exact_ratio for row in mine if row.model == model]
        cells = (_raw_and_cleaned(found.get((model, *source), [])) for source in sources)
        lines.append((model, span(exact, _four), *cells))
    heads = (f"{source}\n{work}" if work else source for source, work in sources)
    caption = "FLOP of backward ÷ FLOP of forward: as found → as cleaned, where they differ"
    return Table(caption, ("model", "exact", *heads), tuple(lines), frozenset(("model",))) if sources else None


def missing_ratios(rows: Sequence[Ratio]) -> Table | None:
    """Why a model has no backward/forward ratio from a source."""
    why: dict[Cells, list[str]] = {}
    for row in rows:
        if row.level == "model" and row.ratio is None and row.reason:
            why.setdefault((row.source, row.work or "count", row.state, row.reason), []).append(row.model)
    return reasons_of_models("Ratios that are not known", ("source", "work", "state", "reason"), why, rows)


def profile_counts(rows: Sequence[ProfileCount]) -> Table | None:
    """FLOP an image of the largest recorded step of each model, as found, as cleaned and exact, by phase."""
    lines = []
    known = [row for row in rows if row.cleaned_flop is not None]
    several = len({row.source for row in known}) > 1
    models = grouped(known, lambda row: (row.model, row.source))
    for (model, source), mine in sorted(models.items(), key=lambda item: natural(item[0][0])):
        work = next(name for name in ("batch", "one", mine[0].work) if any(row.work == name for row in mine))
        of = {phase: [r for r in mine if (r.work, r.phase) == (work, phase)] for phase in ("forward", "backward")}
        flop = (_images_text(state, of[phase]) for phase in of for state in _STATES)
        cleaned = (
            " + ".join(span((getattr(row, name) for row in of[phase]), str) for phase in of) for name in _CLEANED
        )
        lines.append((model, *([source] if several else []), work, *flop, *cleaned))
    heads = (f"{phase}\n{state}" for phase in ("forward", "backward") for state in _STATES)
    names = ("model", *(["source"] if several else []), "work")
    columns = (*names, *heads, "products", "doubles", "filled", "unknown")
    caption = "FLOP an image in the profile, and its products (forward + backward): doubles removed, gaps filled"
    return Table(caption, columns, tuple(lines), frozenset(names)) if lines else None


def missing_profiles(rows: Sequence[ProfileCount], names: Names) -> Table | None:
    """Why a measured cell has no profile of a work, or none of a phase."""
    why: dict[Cells, list[str]] = {}
    for row in names.sorted(rows):
        if row.cell_id in names.measured and row.cleaned_flop is None:
            work = row.work if row.source == PROFILER else f"{row.work}, {row.source}"
            why.setdefault((work, row.reason or "no reason is given"), []).append(row.cell_id)
    return reasons("Profiles without a count", ("work", "reason"), why, names)


def epochs(rows: Sequence[WorkTime], names: Names) -> Table | None:
    """How long an epoch takes: from batches that were timed, under the profiler, and run from end to end."""
    return _times([row for row in names.sorted(rows) if row.work == "epoch"], names, "An epoch", epoch=True)


def works(rows: Sequence[WorkTime], names: Names) -> Table | None:
    """How long one sample, a batch and the last batch take, profiled and not."""
    caption = "One sample (forward and backward), one batch and the epoch's last one"
    return _times([row for row in names.sorted(rows) if row.work != "epoch"], names, caption, epoch=False)


def missing_times(rows: Sequence[WorkTime], names: Names) -> Table | None:
    """Why a measured cell has no time of a work, or none under the profiler."""
    why: dict[Cells, list[str]] = {}
    for row in names.sorted(rows):
        lacks = "time" if row.time_s is None else "profiled time" if row.profiled_time_s is None else ""
        if lacks and row.cell_id in names.measured:
            why.setdefault((row.work, lacks, row.reason or "no reason is given"), []).append(row.cell_id)
    return reasons("Times that are not known", ("work", "what", "reason"), why, names)


def cleaning(log: Sequence[CleaningLog]) -> Table | None:
    """The log by step and reason: how many changes, and how many FLOP they took out or added, all rows together.

    Reasons that differ in their numbers alone are one, and so are the cells' own files.
    """
    lines: list[Cells] = []
    for (step, file), changes in grouped(log, lambda row: (row.step, _kind_of_file(row.file))).items():
        mine = sorted(grouped(changes, lambda row: skeleton(row.reason)).values(), key=len, reverse=True)
        reasons = [(merged([row.reason for row in rows]), rows) for rows in mine[:_MOST_REASONS]]
        if rest := [row for rows in mine[_MOST_REASONS:] for row in rows]:
            reasons.append((f"{len(mine) - _MOST_REASONS} other reasons, each rarer", rest))
        lines += [
            (step, file, reason, str(len({row.cell_id for row in rows})), str(len(rows)), _change(rows))
            for reason, rows in reasons
        ]
    columns = ("step", "file", "reason", "cells", "changes", "FLOP changed")
    text = frozenset(("step", "file", "reason"))
    return Table("What cleaning changed", columns, tuple(lines), text) if lines else None


def extrapolated(counts: Sequence[FlopCount]) -> str:
    """Which counters' larger batches were not counted but follow from smaller ones."""
    found = sorted({row.counter for row in counts if row.extrapolated})
    return f"Counts of larger batches follow from smaller ones by an affine law: {', '.join(found)}." if found else ""


def _signed(flop: int) -> str:
    return f"{'−' if flop < 0 else '+'}{si(abs(flop), 'FLOP')}"


def _agreed(rows: Sequence[Agreement]) -> str:
    """The ratio over a model's cells, and the largest disagreement with its batch; "1" is equal to the last FLOP."""
    known = [row for row in rows if row.ratio is not None]
    if not known:
        return STATUS_WORDS.get(rows[0].status, "unknown") if rows else DASH
    if all(row.difference_flop == 0 for row in known):
        return "1"
    worst = max(known, key=lambda row: abs((row.ratio or 0.0) - 1))
    lines = [span([row.ratio for row in known], _four)]
    if worst.difference_flop is not None:
        lines.append(f"{_signed(worst.difference_flop)} at batch {worst.batch_size}")
    return "\n".join(lines)


def _raw_and_cleaned(rows: Sequence[Ratio]) -> str:
    """ "0.961 → 1.996", or one of them where they are the same."""
    found, cleaned = (span([row.ratio for row in rows if row.state == state], _four) for state in ("found", "cleaned"))
    if found == DASH or all(row.state == "found" for row in rows):
        return cleaned if found == DASH else found
    return found if found == cleaned else f"{found} → {cleaned}"


def _images_text(state: str, rows: Sequence[ProfileCount]) -> str:
    """FLOP an image of a state; of one in which a product has no number what it is at least."""
    whole = span(map(_of_an_image(state), rows), _flop_text)
    partial = [row for row in rows if row.found_flop is None and row.found_at_least_flop is not None and row.items]
    if state != "found" or not partial:
        return whole
    return f"at least {span(((row.found_at_least_flop or 0) / row.items for row in partial), _flop_text)}"


def _of_an_image(state: str) -> Callable[[ProfileCount], float | None]:
    """found, cleaned or exact FLOP of a row ÷ its images."""

    def flop(row: ProfileCount) -> float | None:
        value = {"found": row.found_flop, "cleaned": row.cleaned_flop, "exact": row.exact_flop}[state]
        return None if value is None or not row.items else value / row.items

    return flop


def _times(rows: Sequence[WorkTime], names: Names, caption: str, epoch: bool) -> Table | None:
    """A row for each time; what a real epoch took only where one can be run."""
    lines = []
    for row in (row for row in rows if row.time_s is not None):
        of = (*names.columns(row.cell_id), *(() if epoch else (row.work,)))
        size = (_whole(row.items), _whole(row.steps))
        overhead = DASH if row.overhead_ratio is None else percent(row.overhead_ratio)
        times = (
            _time(row.time_s, row.low_s, row.high_s),
            _time(row.profiled_time_s, row.profiled_low_s, row.profiled_high_s),
        )
        real = (
            (
                _time(row.real_time_s, row.real_low_s, row.real_high_s),
                DASH if row.agrees is None else "yes" if row.agrees else "no",
            )
            if epoch
            else ()
        )
        busy = () if epoch else (_whole(row.kernels), DASH if row.busy_ratio is None else percent(row.busy_ratio))
        lines.append((*of, *size, *times, overhead, *real, *busy))
    work = () if epoch else ("work",)
    run = ("run whole", "agrees") if epoch else ("kernels", "busy")
    columns = (*CELL, *work, "images", "steps", "time", "profiled", "overhead", *run)
    return Table(caption, columns, tuple(lines), WORDS | {"work", "agrees"}) if lines else None


def _time(mean_s: float | None, low_s: float | None, high_s: float | None) -> str:
    if mean_s is None:
        return DASH
    if low_s is None or high_s is None:
        return si_time(mean_s)
    return f"{si_time(mean_s)}\n{si_time(low_s)} to {si_time(high_s)}"


def _whole(count: int | None) -> str:
    return DASH if count is None else str(count)


def _kind_of_file(file: str) -> str:
    """The file, of a cell's own the folder and the ending: "profiles/….csv.gz"."""
    folder, slash, name = file.rpartition("/")
    return f"{folder}/….{name.partition('.')[2]}" if slash else file


def _change(rows: Sequence[CleaningLog]) -> str:
    """FLOP after - FLOP before, all rows together; a dash where no row is about FLOP."""
    changes = [_flop(row.after) - _flop(row.before) for row in rows if row.field.endswith("flop")]
    return _signed(sum(changes)) if changes else DASH


def _flop(text: str) -> int:
    return int(text) if text.lstrip("-").isdigit() else 0
