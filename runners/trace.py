"""`python -m runners.trace FILE`: what a recorded profile says, once double counts and gaps are cleaned.

Reads what torch.profiler (Kineto), Nsight Systems or PyProf recorded, finds the operation of each kernel, counts as the
recording does, takes out what is there twice and fills what is missing from the recorded shapes. Needs no GPU and no
torch. The file is never changed. A file that is not whole is refused: there is no result of half a recording.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.devices import peaks
from results.errors import Inconsistent, StoreFault
from results.records.counts import OperationInstance
from results.text_files import nearest
from runners.cli.exits import FAILED, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import Options, parser_of, read_recording
from runners.cli.output import json_text, put, reserve, say, show_answer, show_page

if TYPE_CHECKING:
    from argparse import Namespace

    from analysis.devices.peaks import Device
    from analysis.ranks.summary import RanksReport, StepFlop
    from analysis.ranks.timelines import Timeline
    from measure.trace.attribution.recording import Recording
    from reports.trace.timeline import Trace


def cleaned(recording: Recording) -> Trace:
    """An attributed recording, cleaned. Raises Inconsistent for one that contradicts itself."""
    import pandas as pd

    from cleaning.trace.clean import clean
    from reports.trace.timeline import Trace

    calls, ranges = recording.calls, recording.ranges
    annotations = ranges[~ranges["name"].str.match("ProfilerStep#|nn.Module: |flopledger")]
    starts = pd.concat([calls["start_ns"], recording.kernels["start_ns"]])
    return Trace(
        path=recording.path,
        source=recording.source,
        device_name=recording.device_name,
        steps=recording.steps,
        begin_ns=int(starts[starts >= 0].min()) if (starts >= 0).any() else -1,
        problems=recording.problems,
        cleaned=clean(
            recording.calls,
            recording.kernels,
            recording.missing,
            numbered=recording.numbered,
        ),
        numbered=recording.numbered,
        after_last_s=_after_last_s(recording),
        host=pd.concat([part[["name", "start_ns", "time_ns"]] for part in (annotations, calls[calls["parent"] < 0])]),
    )


def _after_last_s(recording: Recording) -> float | None:
    """From the end of the last call or kernel to the end of the recording; None: one of them is not recorded."""
    ends = [
        int((frame["start_ns"] + frame["time_ns"]).max())
        for frame in (recording.calls, recording.kernels)
        if len(frame) and int(frame["start_ns"].max()) >= 0
    ]
    if recording.end_ns < 0 or not ends:
        return None
    return max(recording.end_ns - max(ends), 0) * 1e-9


DOCUMENT = "ranks.json"
RANKS_PAGE = "ranks.html"
PASSES = ("forward", "backward")


def report_ranks(folder: Path, device: Device | None, counting: bool) -> RanksReport:
    """What the recordings in a folder say together. counting: also the FLOP of each, which takes most of the time.

    Raises Mistake for a folder without recordings, one that is no rank's, or two of one rank.
    """
    from analysis.ranks.summary import report_of
    from analysis.ranks.timelines import by_rank
    from measure.trace.ranks import rank_files, read_ranks

    with as_mistake(ValueError, OSError):
        timelines = by_rank(read_ranks(rank_files(folder)))
        flop = {rank: _flop(each, device) for rank, each in timelines.items()} if counting else {}
        return report_of(timelines, flop)


def _flop(timeline: Timeline, device: Device | None) -> StepFlop:
    """A rank's own FLOP of a step by its recorded calls, and its device's peak; a reason where they are not known."""
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

    document = json_text(ranks_document(report))
    show_page(lambda width, colour: ranks_text(report, width, colour) if form == "table" else document)
    if page is not None:
        put(page, ranks_html(report))
        say(f"written: {page}")
    if out is not None:
        put(out / DOCUMENT, document)
        put(out / RANKS_PAGE, ranks_html(report))
        say(f"written: {out / DOCUMENT}, {out / RANKS_PAGE}")


KERNELS = "kernels.csv.gz"
INSTANCES = "operation_instances.csv.gz"
LOG = "cleaning_log.csv"
PAGE = "trace.html"

DESCRIPTION = "What does this recorded profile say, once double counts and gaps are cleaned? Needs no GPU and no torch."
EPILOG = "How to record one, and what each word of the answer means: docs/traces.md"


OPTIONS: Options = {
    "file": {
        "type": Path,
        "metavar": "FILE|DIR",
        "help": "trace.json.gz, report.sqlite, PyProf's CSV or dict, found by content; a directory: one trace a rank",
    },
    "format": {},
    "out": {"help": "where to write trace.html, kernels, operations and log"},
    "--html": {"type": Path, "metavar": "PAGE", "help": "where to write the page alone"},
    "--pyprof": {
        "action": "store_true",
        "help": "also what PyProf's rule (2021) gives each kernel, before and after cleaning; always of PyProf's files",
    },
    "--times-only": {"action": "store_true", "help": "of a directory: times alone, without FLOP"},
    "device": {
        "default": None,
        "metavar": "NAME",
        "help": "whose peaks apply, instead of those of the recorded device",
    },
    "peak-tflops": {},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: read and printed; 1: it cannot be true; 2: the caller's mistake; 3: a file was not written."""
    options = parser_of("trace", DESCRIPTION, {"": OPTIONS}, EPILOG).parse_args(arguments)
    return guarded(lambda: _run(options), f"{options.file}: ")


def _run(options: Namespace) -> int:
    """Reads, prints, writes; the exit code."""
    device = _device(options.device, options.peak_tflops)
    if options.file.is_dir():
        return _run_ranks(options, device)
    with as_mistake(Inconsistent, OSError):
        _check_file(options.file)
        if options.out is not None:
            _check_out(options.out)
        if options.html is not None:
            _check_page(options.html)
        recording = read_recording(options.file)
        trace = replace(cleaned(recording), pyprof_rule=options.pyprof)
    from reports.trace.text import impossible

    device = device or _known(trace.device_name)
    show(trace, options.format, device)
    if options.html is not None:
        from reports.trace.page import to_html

        put(options.html, to_html(trace, device))
        say(f"written: {options.html}")
    if options.out is not None:
        write(trace, options.out, device)
    above_peak = impossible(trace, device)
    for line in above_peak:
        say(f"error: {line}")
    return FAILED if above_peak else 0


def _run_ranks(options: Namespace, device: Device | None) -> int:
    """A directory: the recordings of many ranks."""
    if options.format == "csv" or options.pyprof:
        option = "--format csv" if options.format == "csv" else "--pyprof"
        raise Mistake(f"{option}: expected a file, got the directory {options.file}; a directory has a table or JSON")
    if options.out is not None:
        _check_out(options.out)
    if options.html is not None:
        _check_page(options.html)
    report = report_ranks(options.file, device, not options.times_only)
    show_ranks(report, options.format, options.out, options.html)
    return 0


def show(trace: Trace, form: str, device: Device | None = None) -> None:
    """Data on stdout, whatever else there is to say on stderr."""
    from reports.shared.layout import to_csv
    from reports.trace.text import document, to_text

    show_answer(
        form,
        lambda width, colour: to_text(trace, device, width, colour),
        lambda: document(trace, device),
        lambda: to_csv(trace.cleaned.instances, OperationInstance),
    )
    for line in trace.problems if form != "table" else ():
        say(f"note: {line}")


def write(trace: Trace, out: Path, device: Device | None = None) -> None:
    """Puts tables and the page into `out`, each file whole. Raises StoreFault."""
    from reports.shared.layout import to_csv
    from reports.trace.page import to_html
    from reports.trace.text import kernels_csv
    from results.records.counts import CleaningLog
    from results.store.layout import QUICK, compress

    put(out / KERNELS, compress(kernels_csv(trace).encode(), QUICK))
    put(out / INSTANCES, compress(to_csv(trace.cleaned.instances, OperationInstance).encode(), QUICK))
    put(out / LOG, to_csv(trace.cleaned.log, CleaningLog))
    put(out / PAGE, to_html(trace, device))
    say(f"written: {', '.join(str(out / name) for name in (PAGE, KERNELS, INSTANCES, LOG))}")


def _check_file(path: Path) -> None:
    """Raises ValueError for what is no file, with the nearest that there is."""
    if not path.exists():
        folder = path.parent if path.parent.is_dir() else Path()
        names = nearest(path.name, [entry.name for entry in folder.iterdir()], 1)
        says = f", nearest {folder / names[0]}" if names else ""
        raise Mistake(f"expected a recording, got {path}, which does not exist{says}")


def _check_out(out: Path) -> None:
    """Before the long read: raises Mistake if `out` is a file, StoreFault if nothing can be written there."""
    import os

    if out.exists() and not out.is_dir():
        raise Mistake(f"--out: expected a directory, got the file {out}")
    above = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not above.is_dir():
        raise StoreFault(f"{out} could not be written: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise StoreFault(f"{out} could not be written: no permission in {above}")


def _check_page(page: Path) -> None:
    """Before the long read: raises Mistake if `page` is no name of a file, StoreFault if none can be put there."""
    if page.is_dir():
        raise Mistake(f"--html: expected a file, got the directory {page}; nearest {page / PAGE}")
    reserve(page)


def _device(name: str | None, peak_tflops: float | None) -> Device | None:
    """The peaks of a device that the caller names, which must be known, or one peak for all units."""
    from analysis.devices.precisions import UNITS

    if peak_tflops is not None:
        return peaks.Device(
            name=f"--peak-tflops {peak_tflops:g}",
            names=(),
            compute_capability="",
            multiprocessors=None,
            boost_hz=None,
            peaks=dict.fromkeys(UNITS, peak_tflops * 1e12),
            clock_hz={},
            bandwidth_bytes_per_s=None,
            source="as the caller says",
            verification="",
            verified={},
            evidence="",
            note="",
            row_id="",
        )
    if name is None:
        return None
    with as_mistake(ValueError, about="--device: "):
        device = peaks.device_called(name)
    return replace(device, name=peaks.spelling(device, name))


def _known(name: str) -> Device | None:
    """The peaks of the device of a name, under that name, since a row of the table may serve several; None: unknown."""
    device = peaks.lookup(name) if name else None
    return None if device is None else replace(device, name=peaks.spelling(device, name))


if __name__ == "__main__":
    sys.exit(exit_code(main))
