"""Summarises a run in one sentence that a person can act on, and in headline.csv, which has one row per cell.

`closing` takes a run's `View`s (one per cell) and returns a `RunVerdict` with the sentence, which follows from the rows
only. The sentence may mention few FLOP per byte next to a low utilization, but does not prove them to be its cause.
Bytes are the unfused sum over operations, an estimate. `headline_rows` takes a `Built` (everything derived from the
run) and returns the rows of headline.csv. A row has the cell's utilization that is shown first, unrounded, or the
reason why there is none. utilization.csv has every numerator over every denominator, so that a mean over its rows mixes
different questions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from cleaning.reconcile.derived import Built, View
from reports.shared.html import span
from reports.shared.numbers import (
    OF_WHAT,
    STATUS_TEXTS,
    ceiling_name,
    cell_name,
    digits,
    parts,
    percent,
    shared_variant,
    shortened_name,
    shown_interval,
    si,
    si_time,
    source_name,
    used_half_width,
    verdict,
    with_session,
)
from reports.sweep.repeats import name_of, one_a_cell, repeats_by_cell
from results.process import collector_off
from results.records.answers import Headline, Utilization
from results.records.cell import identity
from results.store.layout import key_of

_WORTH_SAYING = 1.25
_SHOWN = 4
_NAME_LETTERS = 60
"""Maximum number of letters of a name in a sentence; tables have the whole name."""


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on a run. sentence: about the run. cells: the cells that the sentence names, with all their repeats;
    empty if no cell has a utilization."""

    sentence: str
    cells: tuple[View, ...] = ()


def closing(views: Sequence[View]) -> RunVerdict:
    """Return the verdict on the best and the worst model, or else on the cell with the highest utilization.

    The sentence names only cells that converged. It compares ratios only if they are relative to the same ceiling.
    """
    divided = [view for view in views if view.headline is not None]
    converged = [view for view in divided if view.run.status == "ok"]
    if not converged:
        return RunVerdict(_wide(divided) if divided else _nothing(views))
    together = repeats_by_cell(converged, views)
    cells = one_a_cell(converged, views)
    best = max(cells, key=_ratio)
    conclusion = _models(cells) or RunVerdict(_single(best), (best,))
    measured: list[View] = []  # all repeats of each cell
    for view in conclusion.cells:
        repeats = together.get(key_of(view.run))
        measured += [view] if repeats is None else repeats.views
    return RunVerdict(conclusion.sentence, tuple(measured))


def basis(conclusion: RunVerdict, views: Sequence[View]) -> str:
    """Return the 95 % interval of each number in the sentence, and the peaks with their sources; "": no number.

    views: of the whole run, so that cells have the same names as in its tables.
    """
    peaks = dict.fromkeys(_peak(_row(view)) for view in conclusion.cells)
    interval = intervals(conclusion, views)
    return f"{interval} Divided by {', and '.join(peaks)}." if interval else ""


def intervals(conclusion: RunVerdict, views: Sequence[View]) -> str:
    """Return a sentence with the 95 % interval of each utilization in the sentence; "" without any."""
    shared, together = shared_variant(views), repeats_by_cell(conclusion.cells, views)
    texts = {}
    for view in conclusion.cells:
        repeats = together.get(key_of(view.run))
        name = shortened_name(cell_name(view, shared) if repeats is None else name_of(repeats, shared), _NAME_LETTERS)
        low, high = shown_interval(_row(view)) if repeats is None else (repeats.low, repeats.high)
        upper = "% or more" if high is None else f"to {digits(100 * high)} %"  # the time's interval may reach zero
        texts[name] = f"{name} unknown (a single block)" if low is None else f"{name} {digits(100 * low)} {upper}"
    return f"95 % intervals: {', '.join(texts.values())}." if texts else ""


def _peak(row: Utilization) -> str:
    source = f": {source_name(row.peak_source)}" if row.peak_source else ""
    marks = [mark for mark in row.warnings if mark.startswith("ceiling_")]
    doubt = with_session(f" ({'; '.join(marks)})" if marks else "")
    return f"{OF_WHAT[row.denominator]} of {row.precision}, {si(row.peak_flop_per_s or 0.0, 'FLOP/s')}{source}{doubt}"


def _nothing(views: Sequence[View]) -> str:
    timed = [view for view in views if view.timed_row]
    if timed and all(view.partial for view in timed):
        return "Steps were timed, but their FLOP are known only in part: the reasons are in utilization.csv."
    if timed:
        return "Steps were timed, but no peak is known for this device: pass --peak-tflops or measure a ceiling."
    reasons = sorted({STATUS_TEXTS.get(view.run.status, view.run.status) for view in views})
    return f"No cell was measured: {', '.join(reasons) or 'the run holds none'}."


def _wide(divided: Sequence[View]) -> str:
    """Return the sentence of a run without a converged cell: how wide the intervals are, whether others used the
    processors, and what can be done."""
    shared, widths = shared_variant(divided), [used_half_width(view) for view in divided]
    names = [shortened_name(cell_name(view, shared), _NAME_LETTERS) for view in divided[:_SHOWN]]
    ends = ["unknown" if width is None else f"±{percent(width)}" for width in widths]
    rest = f" and {len(divided) - _SHOWN} more" if len(divided) > _SHOWN else ""
    what = f"No interval is as narrow as requested ({', '.join(map(' '.join, zip(names, ends, strict=False)))}{rest})"
    if not all(view.run.device == "cpu" and "busy" in str(view.run.warnings) for view in divided):
        return f"{what}: --resume with --retry unconverged measures these cells again."
    used = span([view.run.others_cpu_ratio for view in divided], percent)
    return (
        f"{what}, because others used {used} of the processors: end what runs there, or, if nothing does and the host "
        "of a virtual machine takes them, go on at another hour or elsewhere, with --resume and --retry unconverged."
    )


def _models(views: Sequence[View]) -> RunVerdict | None:
    """Compare the best and worst model at the same precision, batch size and denominator, and their FLOP per byte."""
    groups: dict[tuple[str, int, str, str, str, str], dict[str, list[View]]] = {}
    for view in views:
        run = view.run
        row = _row(view)
        ceiling = ceiling_name(row.denominator, row.peak_flop_per_s, row.peak_source or "")
        key = (run.precision, run.batch_size, row.variant, row.denominator, run.device, ceiling)
        groups.setdefault(key, {}).setdefault(run.model, []).append(view)
    key, models = max(groups.items(), key=lambda item: (len(item[1]), item[0][1]))
    if len(models) < 2:
        return None
    means = {model: fmean(_ratio(view) for view in same) for model, same in models.items()}
    best = max(means, key=lambda model: means[model])
    worst = min(reversed(means), key=lambda model: means[model])  # another one even where all are equal
    high, low = models[best], models[worst]
    start, names = f"At {key[0]}, batch {key[1]}", (_model(high[0]), _model(low[0]))
    ends = _ratios(high[0]), _ratios(low[0])
    if max(low_end for low_end, _ in ends) <= min(high_end for _, high_end in ends):
        why = (
            "the intervals overlap"
            if all(shown_interval(_row(view))[1] is not None for view in (high[0], low[0]))
            else "an interval is missing"
        )
        text = f"{start}, {names[0]} and {names[1]} cannot be distinguished: {why}."
    else:
        used = f"{names[0]} uses {percent(means[best])} of {OF_WHAT[key[3]]} and {names[1]} {percent(means[worst])}"
        text = f"{start}, {used}, {digits(means[best] / means[worst], 2)} times less{_because(high[0], low[0], views)}."
    return RunVerdict(text, (*high, *low))


def _because(best: View, worst: View, views: Sequence[View]) -> str:
    """Return a likely reason of the difference: a waiting GPU, or fewer FLOP per byte, unless another cell of the model
    has a higher utilization with as few."""
    name = _model(worst)
    if worst.run.host_bound and not best.run.host_bound:
        return f": with {name} the GPU waits for the host"
    high = best.counted.flop_per_byte if best.counted else None
    low = worst.counted.flop_per_byte if worst.counted else None
    if not high or not low:
        return ""
    text = f"{digits(low, 2)} FLOP for each byte its operations read and write, {_model(best)} {digits(high, 2)}"
    if high / low >= _WORTH_SAYING:
        run, shared = worst.run, shared_variant(views)
        alike = [
            view
            for view in views
            if (view.run.model, view.run.batch_size, view.run.precision) == (run.model, run.batch_size, run.precision)
            and _row(view).denominator == _row(worst).denominator
            and view.counted is not None
            and 0 < (view.counted.flop_per_byte or 0.0) <= low * _WORTH_SAYING
        ]
        text = f": {name} does {text} ({digits(high / low, 2)} times more)"
        if _ratio(most := max(alike, key=_ratio)) >= _ratio(worst) * _WORTH_SAYING:
            text += f"; not the only reason, as {cell_name(most, shared)} uses {percent(_ratio(most))} with as few"
        return text
    return f", which bytes do not explain: {name} does {text}"


def _model(view: View) -> str:
    return shortened_name(view.run.model, _NAME_LETTERS)


def _row(view: View) -> Utilization:
    """Return the headline of a cell that has one."""
    if view.headline is None:
        raise ValueError(f"expected a cell with a utilization, got {view.run.cell_id} ({view.run.status})")
    return view.headline


def _ratio(view: View) -> float:
    return _row(view).utilization_ratio or 0.0


def _ratios(view: View) -> tuple[float, float]:
    """Return the interval of the headline's ratio; without one everything from 0 up, so that it is never
    distinguished."""
    row = _row(view)
    low, high = shown_interval(row)
    return (0.0 if low is None else low, math.inf if high is None else high)


def _single(view: View) -> str:
    row = _row(view)
    ratio, time_s = _ratio(view), row.time_s or 0.0
    start = f"{_model(view)} at batch {view.run.batch_size} in {view.run.precision}"
    if ratio > 1:
        return f"{start} ran at {digits(ratio)} times {OF_WHAT[row.denominator]}: doubt that peak before the model."
    what = {"one": "one sample", "epoch": "its epoch"}.get(row.method, "its step")
    at_peak = f"{what} would take {si_time(time_s * ratio)} instead of {si_time(time_s)}"
    return f"{start} uses {percent(ratio)} of {OF_WHAT[row.denominator]}: at all of it {at_peak}."


@collector_off()
def headline_rows(built: Built) -> list[Headline]:
    """Return a row for each cell, repeats pooled, in the order of the table: by model, batch and precision."""
    devices = {session.session: session.device_name for session in built.sessions}
    views = sorted(built.views, key=lambda v: (v.run.model, v.run.batch_size, v.run.precision, v.run.repeat))
    together = repeats_by_cell(views, views)
    rows = []
    for view in one_a_cell(views, views):
        run, headline = view.run, view.headline
        row, repeats = headline or view.timed_row, together.get(key_of(run))
        low, high = shown_interval(headline) if headline else (None, None)
        why = dict.fromkeys(fraction.reason for fraction in view.fractions if fraction.reason)
        rows.append(
            Headline(
                **identity(run, Headline),
                layout=run.layout,
                compile=run.compile,
                variant=", ".join(part for part in parts(view.variant) if not part.startswith(("layout=", "compile="))),
                device_name=devices.get(run.session, ""),
                repeats=len(repeats.views) if repeats else int(headline is not None),
                step_time_s=view.step.time_s if view.step else None,
                items_per_s=row.items_per_s if row else None,
                model_flop=row.model_flop if row else None,
                achieved_flop_per_s=row.achieved_flop_per_s if row else None,
                peak_flop_per_s=headline.peak_flop_per_s if headline else None,
                denominator=headline.denominator if headline else "",
                peak_source=headline.peak_source if headline else "",
                method=row.method if row else "",
                numerator_source=row.numerator_source if row else "",
                utilization_ratio=headline.utilization_ratio if headline else None,
                utilization_low_ratio=low,
                utilization_high_ratio=high,
                verdict=verdict(view),
                reason=run.reason if run.reason or headline else "; ".join(why) or "no method was requested",
            )
        )
    return rows
