"""`python -m runners.trace FILE`: what a recorded profile says, once double counts and gaps are cleaned.

Reads what torch.profiler (Kineto), Nsight Systems or PyProf recorded, finds the operation of each kernel, counts as the
recording does, takes out what is there twice and fills what is missing from the recorded shapes. Needs no GPU and no
torch. The file is never changed. A file that is not whole is refused: there is no result of half a recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from results.names import nearest
from runners.cli.arguments import Parser, add_format, number
from runners.cli.exits import FAILED, UNWRITABLE, Mistake, guarded
from runners.cli.model_options import read_recording
from runners.cli.output import put, remove_others, reserve, say, show_page
from runners.trace.recording import cleaned

if TYPE_CHECKING:
    from argparse import Namespace

    from analysis.devices.peaks import Device
    from reports.trace.timeline import Trace

KERNELS = "kernels.csv.gz"
INSTANCES = "operation_instances.csv.gz"
LOG = "cleaning_log.csv"
FIGURES = "figures"
PAGE = "trace.html"

DESCRIPTION = "What does this recorded profile say, once double counts and gaps are cleaned? Needs no GPU and no torch."
EPILOG = "How to record one, and what each word of the answer means: docs/traces.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: read and printed; 1: it cannot be true; 2: the caller's mistake; 3: a file was not written."""
    parser = _parser()
    options = parser.parse_args(arguments)
    return guarded(lambda: _run(parser, options), options.debug, f"{options.file}: ")


def _run(parser: Parser, options: Namespace) -> int:
    """Reads, prints, writes; the exit code."""
    from results.errors import Inconsistent

    device = _device(parser, options.device, options.peak_tflops)
    if options.file.is_dir():
        return _run_ranks(options, device)
    try:
        _check_file(options.file)
        if options.out is not None:
            _check_out(options.out)
        if options.html is not None:
            _check_page(options.html)
        recording = read_recording(options.file)
        trace = replace(cleaned(recording), pyprof_rule=options.pyprof)
    except (Inconsistent, OSError) as fault:
        raise Mistake(str(fault)) from fault
    from reports.trace.text import impossible

    device = device or _known(trace.device_name)
    show(trace, options.format, device)
    if options.html is not None:
        from reports.trace.page import to_html

        put(options.html, to_html(trace, device))
        say(f"written: {options.html}")
    faults = write(trace, options.out, device) if options.out is not None else []
    above_peak = impossible(trace, device)
    for line in (*faults, *above_peak):
        say(f"error: {line}")
    if faults:
        return UNWRITABLE
    return FAILED if above_peak else 0


def _run_ranks(options: Namespace, device: Device | None) -> int:
    """A directory: the recordings of many ranks."""
    from runners.trace.ranks import report_ranks, show_ranks

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
    import json

    from reports.sweep.table import to_csv
    from reports.trace.text import document, to_text
    from results.records.operations import OperationInstance

    if form == "table":
        show_page(lambda width, colour: to_text(trace, device, width, colour))
        return
    if form == "csv":
        print(to_csv(trace.cleaned.instances, OperationInstance), end="")
    else:
        print(json.dumps(document(trace, device), indent=1, ensure_ascii=False, allow_nan=False))
    for line in trace.problems:
        say(f"note: {line}")


def write(trace: Trace, out: Path, device: Device | None = None) -> list[str]:
    """Puts tables and what is drawn from them into `out`, each file whole. A line for each figure that failed.

    Raises StoreFault.
    """
    from reports.sweep.table import to_csv
    from reports.trace.page import to_html
    from reports.trace.text import kernels_csv
    from reports.trace.timeline import has_states
    from results.records.counts import CleaningLog
    from results.records.operations import OperationInstance
    from results.store.layout import QUICK, compress

    put(out / KERNELS, compress(kernels_csv(trace).encode(), QUICK))
    put(out / INSTANCES, compress(to_csv(trace.cleaned.instances, OperationInstance).encode(), QUICK))
    put(out / LOG, to_csv(trace.cleaned.log, CleaningLog))
    put(out / PAGE, to_html(trace, device))
    try:
        drawn = _pictures(out, has_states(trace))
    except Exception as fault:  # noqa: BLE001  the edge: what is drawn is no reason to lose what was counted
        return [f"figures could not be made: {type(fault).__name__}: {' '.join(str(fault).split())}"]
    for name, content in drawn.items():
        put(out / FIGURES / name, content)
    remove_others(out / FIGURES, drawn)
    names = (PAGE, KERNELS, INSTANCES, LOG, FIGURES)
    say(f"written: {', '.join(str(out / name) for name in names)}")
    return []


def _pictures(out: Path, states: bool) -> dict[str, bytes]:
    """File name → content of every figure of the tables in `out`. states: also what was found before cleaning."""
    from reports.shared import figure_style
    from reports.trace import figures as trace_figures

    return figure_style.render_all(lambda: trace_figures.figures(out, states))


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

    from results.errors import StoreFault

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


def _device(parser: Parser, name: str | None, peak_tflops: float | None) -> Device | None:
    """The peaks of a device that the caller names, which must be known, or one peak for all units."""
    from analysis.devices import peaks
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
    try:
        device = peaks.device_called(name)
    except ValueError as fault:
        parser.fail(f"--device: {fault}")
    return replace(device, name=peaks.spelling(device, name))


def _known(name: str) -> Device | None:
    """The peaks of the device of a name, under that name, since a row of the table may serve several; None: unknown."""
    from analysis.devices import peaks

    device = peaks.lookup(name) if name else None
    return None if device is None else replace(device, name=peaks.spelling(device, name))


def _parser() -> Parser:
    parser = Parser(prog="python -m runners.trace", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE|DIR",
        help="trace.json.gz, report.sqlite, PyProf's CSV or dict, found by content; a directory: one trace a rank",
    )
    add_format(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write trace.html, kernels, operations, log and figures"
    )
    parser.add_argument("--html", type=Path, metavar="PAGE", help="where to write the page alone")
    parser.add_argument(
        "--pyprof",
        action="store_true",
        help="also what PyProf's rule (2021) gives each kernel, before and after cleaning; always of PyProf's files",
    )
    parser.add_argument("--times-only", action="store_true", help="of a directory: times alone, without FLOP")
    parser.add_argument("--device", metavar="NAME", help="whose peaks apply, instead of those of the recorded device")
    parser.add_argument(
        "--peak-tflops",
        type=number(float, 1e-6, 1e9),
        metavar="N",
        help="a peak of your own for one device, in 1e12 FLOP/s",
    )
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    return parser
