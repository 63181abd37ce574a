"""`python -m runners.trace DIR`: recordings of many ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from results.errors import Inconsistent
from runners.cli.exits import Mistake
from runners.cli.model_options import read_recording
from runners.cli.output import put, say, show_page
from runners.trace.recording import cleaned

if TYPE_CHECKING:
    from analysis.devices.peaks import Device
    from analysis.ranks.summary import RanksReport, StepFlop
    from analysis.ranks.timelines import Timeline
    from measure.trace.attribution.recording import Recording
    from reports.trace.timeline import Trace

DOCUMENT = "ranks.json"
PAGE = "ranks.html"
PASSES = ("forward", "backward")


def report_ranks(folder: Path, device: Device | None, counting: bool) -> RanksReport:
    """What the recordings in a folder say together. counting: also the FLOP of each, which takes most of the time.

    Raises Mistake for a folder without recordings, one that is no rank's, or two of one rank.
    """
    from analysis.ranks.summary import report_of
    from analysis.ranks.timelines import by_rank
    from measure.trace.ranks.recordings import rank_files, read_ranks

    try:
        timelines = by_rank(read_ranks(rank_files(folder)))
        flop = {rank: _flop(each, device) for rank, each in timelines.items()} if counting else {}
        return report_of(timelines, flop)
    except (ValueError, OSError) as fault:
        raise Mistake(str(fault)) from fault


def _flop(timeline: Timeline, device: Device | None) -> StepFlop:
    """A rank's own FLOP of a step by its recorded calls, and its device's peak; a reason where they are not known."""
    from analysis.devices import peaks
    from analysis.ranks.summary import StepFlop

    known = device or (peaks.lookup(timeline.device_name) if timeline.device_name else None)
    try:
        trace = cleaned(read_recording(Path(timeline.path), _part_of(timeline)))
    except (Inconsistent, Mistake) as fault:
        return StepFlop(None, str(fault))
    totals = {phase: trace.cleaned.phase_totals["repaired"][f"{phase}_flop"] for phase in PASSES}
    flop = {  # inference has no backward pass
        phase: total.flop
        for phase, total in totals.items()
        if trace.cleaned.missing or total.unknown_calls or total.at_least is not None
    }
    unknown = [phase for phase in flop if flop[phase] is None]
    if unknown or not flop:
        of = f"of the {' and the '.join(unknown)} pass, calls have no count" if unknown else "no product was recorded"
        return StepFlop(None, of)
    whole = sum(each or 0 for each in flop.values())
    return StepFlop(whole / max(trace.steps or 1, 1), "", None if known is None else _peak(trace, known))


def _part_of(timeline: Timeline) -> Callable[[Recording], Recording] | None:
    """What of its file is this rank's; None: all."""
    if timeline.process < 0:
        return None
    from measure.trace.attribution.recording import of_process

    return partial(of_process, process=timeline.process)


def _peak(trace: Trace, device: Device) -> float | None:
    """The dense peak of the units that ran the products, weighted by their FLOP; None where no unit is known."""
    from reports.trace.rates import rates

    found = rates(trace.cleaned.instances, trace.cleaned.kernels, device)
    ideal_s = sum(rate.flop / rate.peak_flop_per_s for rate in found)
    return sum(rate.flop for rate in found) / ideal_s if ideal_s else None


def show_ranks(report: RanksReport, form: str, out: Path | None, page: Path | None = None) -> None:
    """Data on stdout; with `out`, document and page there as well; page: where the page alone is put. Raises
    StoreFault."""
    from reports.trace.ranks import ranks_document, ranks_html, ranks_text

    document = json.dumps(ranks_document(report), indent=1, ensure_ascii=False, allow_nan=False)
    if form == "table":
        show_page(lambda width, colour: ranks_text(report, width, colour))
    else:
        print(document)
    if page is not None:
        put(page, ranks_html(report))
        say(f"written: {page}")
    if out is not None:
        put(out / DOCUMENT, f"{document}\n")
        put(out / PAGE, ranks_html(report))
        say(f"written: {out / DOCUMENT}, {out / PAGE}")
