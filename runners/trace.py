"""`python -m runners.trace FILE`: what does a recorded profile say, once double counts and gaps are cleaned?

The command reads recordings of torch.profiler (Kineto), Nsight Systems and PyProf. It finds the operation of each
kernel and takes the FLOP that the recording itself counts. It removes duplicates, and fills gaps from the recorded
shapes. The result is printed; `--html` and `--out` write a page and tables. The command needs no GPU and no torch, and
never changes the file. A file that is cut off is refused. Totals of a recording that lacks events are marked "at
least".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.devices import peaks
from results.errors import Inconsistent
from results.records.counts import CleaningLog, OperationInstance
from results.text_files import nearest
from runners.cli.exits import FAILED, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import Options, parser_of, read_recording
from runners.cli.output import json_text, reserve, say, show_answer, show_page, write_file

if TYPE_CHECKING:
    from argparse import Namespace

    from analysis.rank_report import RanksReport, StepFlop
    from analysis.rank_timelines import RankTimeline
    from measure.trace.recording import Recording
    from reports.trace.timeline import TraceView


def cleaned(recording: Recording) -> TraceView:
    """Clean a recording whose kernels have their operations. Raises Inconsistent if it contradicts itself."""
    import pandas as pd

    from cleaning.trace.clean import clean
    from reports.trace.timeline import TraceView

    calls, kernels, ranges = recording.calls, recording.kernels, recording.ranges
    annotations = ranges[~ranges["name"].str.match("ProfilerStep#|nn.Module: |flopledger")]
    parts = [rows for rows in (calls, kernels) if (rows["start_ns"] >= 0).any()]
    starts = [int(rows["start_ns"][rows["start_ns"] >= 0].min()) for rows in parts]
    ends = [int((rows["start_ns"] + rows["time_ns"]).max()) for rows in parts]
    return TraceView(
        path=recording.path,
        source=recording.source,
        device_name=recording.device_name,
        steps=recording.steps,
        begin_ns=min(starts, default=-1),
        problems=recording.problems,
        cleaned=clean(calls, kernels, recording.missing, numbered=recording.numbered),
        numbered=recording.numbered,
        after_last_s=max(recording.end_ns - max(ends), 0) * 1e-9 if ends and recording.end_ns >= 0 else None,
        host=pd.concat([part[["name", "start_ns", "time_ns"]] for part in (annotations, calls[calls["parent"] < 0])]),
    )


PASSES = ("forward", "backward")


def report_ranks(folder: Path, device: peaks.Device | None, counting: bool) -> RanksReport:
    """Report on the recordings in a folder together. counting: whether to count the FLOP of each, which takes most of
    the time.

    Raises Mistake for a folder without recordings, a recording without a rank, or two of one rank.
    """
    from analysis.rank_report import report_of
    from analysis.rank_timelines import by_rank
    from measure.trace.read import rank_files, read_ranks

    with as_mistake(ValueError, OSError):
        timelines = by_rank(read_ranks(rank_files(folder)))
        flop = {rank: _flop(timeline, device) for rank, timeline in timelines.items()} if counting else {}
        return report_of(timelines, flop)


def _flop(timeline: RankTimeline, device: peaks.Device | None) -> StepFlop:
    """Return a rank's own FLOP of a step by its recorded calls, and its device's peak; a reason where they are
    unknown."""
    from analysis.rank_report import StepFlop
    from measure.trace.recording import of_process
    from reports.trace.rates import rates

    known = device or (peaks.lookup(timeline.device_name) if timeline.device_name else None)
    part = None if timeline.process < 0 else partial(of_process, process=timeline.process)
    try:
        trace = cleaned(read_recording(Path(timeline.path), part))
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
    # the dense peak of the units that ran the products, weighted by their FLOP
    speeds = rates(trace.cleaned.instances, trace.cleaned.kernels, known) if known is not None else ()
    ideal_s = sum(rate.flop / rate.peak_flop_per_s for rate in speeds)
    peak = sum(rate.flop for rate in speeds) / ideal_s if ideal_s else None
    return StepFlop(sum(phase_flop or 0 for phase_flop in flop.values()) / max(trace.steps or 1, 1), "", peak)


def show_ranks(report: RanksReport, form: str, out: Path | None, page: Path | None = None) -> None:
    """Print the report on stdout; write document and page to `out`, and the page to the file `page`, if given. Raises
    StoreFault."""
    from reports.trace.ranks import ranks_document, ranks_html, ranks_text

    document = json_text(ranks_document(report))
    show_page(lambda width, colour: ranks_text(report, width, colour) if form == "table" else document)
    files = {} if page is None else {page: ranks_html(report)}
    if out is not None:
        files |= {out / "ranks.json": document, out / "ranks.html": ranks_html(report)}
    for path, content in files.items():
        write_file(path, content)
    if files:
        say(f"written: {', '.join(map(str, files))}")


PAGE = "trace.html"

DESCRIPTION = "What does this recorded profile say, once double counts and gaps are cleaned? Needs no GPU and no torch."
EPILOG = "How to record one, and what each word of the answer means: docs/traces.md"


OPTIONS: Options = {
    "file": {
        "type": Path,
        "metavar": "FILE|DIR",
        "help": "trace.json.gz, report.sqlite, PyProf's CSV or dict, …, told by content; a directory: one per rank",
    },
    "format": {},
    "out": {"help": "write trace.html and tables of kernels, operations and changes here"},
    "--html": {"type": Path, "metavar": "PAGE", "help": "write only the page, to this file"},
    "--pyprof": {
        "action": "store_true",
        "help": "also show what PyProf's rule (2021) gives each kernel, before and after cleaning; PyProf's files are "
        "always shown so",
    },
    "--times-only": {"action": "store_true", "help": "for a directory: show times only, without FLOP"},
    "device": {
        "default": None,
        "metavar": "NAME",
        "help": "use the peaks of this device, instead of those of the recorded one",
    },
    "peak-tflops": {},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. 0: read and printed; 1: products ran faster than the device's peak; 2: the
    caller's mistake; 3: a file was not written."""
    options = parser_of("trace", DESCRIPTION, {"": OPTIONS}, EPILOG).parse_args(arguments)
    return guarded(lambda: _run(options), f"{options.file}: ")


def _run(options: Namespace) -> int:
    """Read, print and write; returns the exit code."""
    device = _device(options.device, options.peak_tflops)
    if options.html is not None and options.html.is_dir():
        nearest_page = options.html / PAGE
        raise Mistake(f"--html: expected a file, got the directory {options.html}; nearest {nearest_page}")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise Mistake(f"--out: expected a directory, got the file {options.out}")
    if options.html is not None:
        reserve(options.html)  # before the long read
    if options.file.is_dir():
        if options.format == "csv" or options.pyprof:
            option = "--format csv" if options.format == "csv" else "--pyprof"
            raise Mistake(
                f"{option}: expected a file, got the directory {options.file}; a directory has a table or JSON"
            )
        show_ranks(
            report_ranks(options.file, device, not options.times_only), options.format, options.out, options.html
        )
        return 0
    if not options.file.exists():
        folder = options.file.parent if options.file.parent.is_dir() else Path()
        names = nearest(options.file.name, [entry.name for entry in folder.iterdir()], 1)
        suggestion = f", nearest {folder / names[0]}" if names else ""
        raise Mistake(f"expected a recording, got {options.file}, which does not exist{suggestion}")
    with as_mistake(Inconsistent, OSError):
        trace = replace(cleaned(read_recording(options.file)), pyprof_rule=options.pyprof)
    from reports.trace.lines import impossible

    if device is None and trace.device_name and (device := peaks.lookup(trace.device_name)) is not None:
        device = replace(device, name=peaks.spelling(device, trace.device_name))  # a row of the table may serve several
    show(trace, options.format, device)
    if options.html is not None:
        from reports.trace.page import to_html

        write_file(options.html, to_html(trace, device))
        say(f"written: {options.html}")
    if options.out is not None:
        write(trace, options.out, device)
    above_peak = impossible(trace, device)
    for line in above_peak:
        say(f"error: {line}")
    return FAILED if above_peak else 0


def show(trace: TraceView, form: str, device: peaks.Device | None = None) -> None:
    """Print the answer on stdout, and notes on stderr."""
    from reports.shared.layout import to_csv
    from reports.trace.document import document
    from reports.trace.text import to_text

    show_answer(
        form,
        lambda width, colour: to_text(trace, device, width, colour),
        lambda: document(trace, device),
        lambda: to_csv(trace.cleaned.instances, OperationInstance),
    )
    for line in trace.problems if form != "table" else ():
        say(f"note: {line}")


def write(trace: TraceView, out: Path, device: peaks.Device | None = None) -> None:
    """Write tables and the page into `out`, each file whole. Raises StoreFault."""
    from reports.shared.layout import to_csv
    from reports.trace.document import kernels_csv
    from reports.trace.page import to_html
    from results.store.layout import QUICK, compress

    files: dict[str, str | bytes] = {
        PAGE: to_html(trace, device),
        "kernels.csv.gz": compress(kernels_csv(trace).encode(), QUICK),
        "operation_instances.csv.gz": compress(to_csv(trace.cleaned.instances, OperationInstance).encode(), QUICK),
        "cleaning_log.csv": to_csv(trace.cleaned.log, CleaningLog),
    }
    for name, content in files.items():
        write_file(out / name, content)
    say(f"written: {', '.join(str(out / name) for name in files)}")


def _device(name: str | None, peak_tflops: float | None) -> peaks.Device | None:
    """Return the peaks of the device with this name, which must be known, or one given peak for all units."""
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


if __name__ == "__main__":
    sys.exit(exit_code(main))
