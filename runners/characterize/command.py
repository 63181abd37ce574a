"""`python -m runners.characterize`: how workloads differ, in operation mix, similarity, use of the device, parallelism.

A worker runs each workload and gives back what it recorded; a fault in one costs one row. What is told is worked out of
the recorded rows alone, so that `python -m runners.characterize DIR` tells it again without torch. Exit codes: 0 all
were recorded; 1 some were not; 2 the caller's mistake; 3 a file could not be written; 130 Ctrl-C, after what was
recorded by then was reported.

Each file of rows is replaced at once or not at all, after every recording, `recordings.csv` last: what was recorded
before a kill is whole. Derived tables and figures can be deleted and made again.
"""

from __future__ import annotations

import gzip
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.records import rows as records_rows
from results.records.characterization import FILES, MODES, Characterization, WorkloadRecording
from results.text_files import csv_table, read_text
from runners.characterize import plan as characterize_plan
from runners.characterize.plan import BATCH, BOTH, OWN, RecordingRequest
from runners.cli.arguments import names, number
from runners.cli.exits import FAILED, INTERRUPTED, MISTAKE, Mistake, as_mistake, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import json_text, put, reserve, say, show_answer
from runners.cli.progress import passing
from runners.workers import devices
from workloads.catalogue.catalogue import OPTIMIZERS
from workloads.catalogue.entries import AS_CODED, AS_PAPER

if TYPE_CHECKING:
    from reports.characterize.answer import CharacterizeAnswer
    from runners.workers.devices import ProbeResult


VARIANTS = (AS_CODED, AS_PAPER, BOTH)
SCALES = ("own", "small")
REPRODUCED = ("fathom",)

STEPS = 12
TIMEOUT_S = 1800.0

DESCRIPTION = "How do workloads differ: operation mix, similarity, training against inference, parallelism?"
EPILOG = "What each number means, and where its formula comes from: docs/characterize.md."


OPTIONS: Mapping[str, Options] = {
    "": {
        "directories": {
            "nargs": "*",
            "type": Path,
            "metavar": "DIR",
            "help": "folders of recordings to report on, together",
        },
    },
    "what is recorded": {
        "--models": {},
        "suite": {},
        "--reproduce": {
            "choices": REPRODUCED,
            "help": "compare Fathom's eight, at small sizes, with the paper's numbers",
        },
        "--variant": {"choices": VARIANTS, "help": "of workloads that have two variants (as_coded)"},
        "--scale": {
            "choices": SCALES,
            "help": "small: sizes for a CPU, where there are some (own; of --reproduce small)",
        },
        "batch-sizes": {
            "help": "samples in a batch: shares are of the first number, the others show parallelism "
            f"(the workload's own, or {BATCH})",
        },
        "size": {},
        "optimizer": {"choices": (OWN, *OPTIMIZERS), "default": OWN, "help": "own: the workload's, else sgd (own)"},
    },
    "how it is run": {
        "--modes": {"type": names("mode", MODES), "default": MODES, "help": f"{', '.join(MODES)} (both)"},
        "device": {
            "type": names("device"),
            "default": ("auto",),
            "help": "auto, cpu, cuda, cuda:1; several with commas (auto)",
        },
        "threads": {
            "default": (1,),
            "help": "threads of an operation on a CPU: shares are of the first number, the others show parallelism (1)",
        },
        "--steps": {
            "type": number(int, 1),
            "default": STEPS,
            "metavar": "N",
            "help": f"steps with the profiler, and as many without; the first and last are not used ({STEPS})",
        },
        "--alone": {
            "action": "store_true",
            "help": "also time each operation by itself, and add these times up to a step",
        },
        "precision": {},
        "layout": {},
        "timeout": {"default": TIMEOUT_S, "help": f"of one recording ({TIMEOUT_S:g})"},
    },
    "the report": {
        "ceilings": {"help": "ceilings.csv, for the share of the peak that each group reaches"},
        "out": {"help": "write the recordings, tables and figures here"},
        "format": {"help": "table, csv (of shares) or json (table)"},
    },
}

parser = partial(parser_of, "characterize", DESCRIPTION, OPTIONS, EPILOG)

FIRST = next(iter(FILES))
FIGURES = "figures"
PAGE = "characterize.txt"
DATA = "characterize.json"


def reserve_new(out: Path) -> None:
    """Make sure that rows can be put there, and that none are there already. Raises Mistake, StoreFault."""
    if (out / FIRST).exists():
        raise Mistake(f"--out: expected a directory without {FIRST}, got {out}; report it without --models")
    if out.exists() and not out.is_dir():
        raise Mistake(f"--out: expected a directory, got the file {out}")
    reserve(out / FIRST)


def write_rows(data: Characterization, out: Path) -> None:
    """The files of rows. Raises StoreFault."""
    from reports.shared.layout import to_csv

    for name, rows in reversed(data.rows().items()):
        text = to_csv(rows, FILES[name]).encode()
        put(out / name, gzip.compress(text, mtime=0) if name.endswith(".gz") else text)


def read_rows(directory: Path) -> Characterization:
    """The rows that are there. Raises Mistake for a directory that holds no characterization, or a torn one."""
    if not directory.is_dir():
        raise Mistake(f"expected a directory with {FIRST}, got {directory}, which is none")
    if not (directory / FIRST).is_file():
        raise Mistake(f"expected a directory with {FIRST}, got {directory}, which has none")
    found = []
    for name, record in FILES.items():
        path = directory / name
        try:
            found.append(tuple(records_rows.read_rows(record, *csv_table(read_text(path)))))
        except (OSError, ValueError) as fault:
            cause = getattr(fault, "strerror", None) or fault
            raise Mistake(f"expected {path} as runners.characterize writes it, got: {cause}") from fault
    return Characterization(*found)  # type: ignore[arg-type]


def write_report(seen: CharacterizeAnswer, out: Path) -> None:
    """The derived tables, the report, and the figures last, so that a picture that fails loses no table."""
    from reports.characterize import answer, figures
    from reports.characterize.sections import to_text
    from reports.shared import figure_style

    for name, text in answer.tables(seen).items():
        put(out / name, text)
    put(out / DATA, json_text(answer.document(seen)))
    put(out / PAGE, to_text(seen))
    for name, content in figure_style.render_all(lambda: figures.figures(seen)).items():
        put(out / FIGURES / name, content)


ASKED_WRONGLY = ("invalid", "unavailable")
"""Statuses that are the caller's mistake."""

OTHERS = "times hold others' work, too"

WAY = ("mode", "batch_size", "hyper", "device", "threads", "precision", "layout", "execution", "optimizer", "seed")
"""Fields of a recording that say how it was run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    """Everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    peaks = _peaks(options)
    notes: tuple[str, ...] = ()
    if options.directories:
        data, interrupted = _read(options), False
    else:
        _check(options)
        data, notes, interrupted = _record_all(options)
    from reports.characterize.answer import look

    seen = look(data, notes, reproduce=options.reproduce or "", peaks=peaks)
    show(seen, options)
    return INTERRUPTED if interrupted else _code(data)


def _peaks(options: Namespace) -> dict[str, float]:
    """Unit → the best FLOP/s that --ceilings has, of the threads that the shares are of; empty without a file."""
    if options.ceilings is None:
        return {}
    from analysis.devices import peaks
    from analysis.devices.ceilings import best, impossible
    from runners.ceiling.command import read_ceilings

    with as_mistake(ValueError, about="--ceilings: "):
        rows = read_ceilings(options.ceilings)
    mine = [row for row in rows if row.threads in (None, options.threads[0])]
    found = {unit: best(mine, unit) for unit in {row.unit for row in mine if row.unit}}
    return {
        unit: row.flop_per_s
        for unit, row in found.items()
        if row is not None and row.flop_per_s and not impossible(mine, unit, peaks.lookup(row.device_name))
    }


def _read(options: Namespace) -> Characterization:
    asked = [name for name in ("models", "suite", "reproduce") if getattr(options, name) is not None]
    if asked and asked != ["reproduce"]:
        raise Mistake(f"expected directories to report or --{asked[0]}, got both")
    data = Characterization()
    for directory in options.directories:
        found = read_rows(directory)
        if twice := {_way(each) for each in data.recordings} & {_way(each) for each in found.recordings}:
            same = min(twice)[0]
            raise Mistake(f"expected recordings that differ, got {same} recorded the same way in {directory}, too")
        data = data.with_rows(found.numbered_from(len(data.recordings)))
    if len(options.directories) == 1:
        options.out = options.out or options.directories[0]
    elif options.out is not None:
        reserve_new(options.out)
        write_rows(data, options.out)
    return data


def _way(recording: WorkloadRecording) -> tuple[str, ...]:
    """What a recording is of, as text; its workload first."""
    return (recording.workload, *(str(getattr(recording, name)) for name in WAY))


def _check(options: Namespace) -> None:
    """Raises Mistake for what cannot be, before anything slow is imported or written."""
    for device in options.device:
        devices.check_name(device)
    characterize_plan.requests(options, ["cpu"])
    if options.out is not None:
        reserve_new(options.out)


def _record_all(options: Namespace) -> tuple[Characterization, tuple[str, ...], bool]:
    """What was recorded, notes on all of it, and whether Ctrl-C ended it."""
    from runners.workers.pool import Worker, prepare

    prepare()
    worker = Worker("characterize")
    data, interrupted = Characterization(), False
    notes: tuple[str, ...] = ()
    try:
        probed = [devices.probed_device(worker, device) for device in options.device]
        _check_precisions(options, probed)
        notes = tuple(note for each in probed for note in devices.busy(each.device, each.environment, OTHERS))
        found = characterize_plan.requests(options, [each.device for each in probed])
        wanted = [_on(request, probed) for request in found]
        only = len({each.recording.workload for each in wanted}) == 1
        for place, request in enumerate(wanted):
            each = request.recording
            passing(f"[{place + 1}/{len(wanted)}] {each.workload}, {each.mode}, {each.device}, {each.why}")
            data = data.with_rows(_one(worker, request, options, only=only and not data.recordings))
            if options.out is not None:
                write_rows(data, options.out)
            worker.stop()  # so that the next one's memory is its own
    except KeyboardInterrupt:
        if not data.recordings:
            raise
        interrupted, notes = True, (*notes, "interrupted: what was not recorded is missing")
    finally:
        passing("")
        worker.stop()
    return data, notes, interrupted


def _on(request: RecordingRequest, probed: Sequence[ProbeResult]) -> RecordingRequest:
    """The request, with what its device is and which PyTorch runs it."""
    device = next(each for each in probed if each.device == request.recording.device)
    version = device.environment.get("torch") or ""
    return replace(request, recording=replace(request.recording, device_name=device.name, torch_version=version))


def _check_precisions(options: Namespace, probed: Sequence[ProbeResult]) -> None:
    for each in probed:
        if options.precision in each.refused:
            raise Mistake(f"--precision: {each.refused[options.precision]}")


def _one(worker: Any, request: RecordingRequest, options: Namespace, *, only: bool) -> Characterization:
    """The rows of one recording; of one that failed its own row, which says why.

    Raises Mistake for one that cannot be, where it is the only workload.
    """
    from runners.workers.pool import WorkerFault

    start_s = time.monotonic()
    answer = worker.call("runners.characterize.task:record", request, timeout_s=options.timeout)
    if not isinstance(answer, WorkerFault):
        took_s = time.monotonic() - start_s
        found: Characterization = answer
        return replace(found, recordings=tuple(replace(each, took_s=took_s) for each in found.recordings))
    passing("")
    if only and answer.status in ASKED_WRONGLY:
        raise Mistake(answer.reason)
    say(f"warning: {request.recording.workload}: {answer.status.replace('_', ' ')}: {answer.reason}")
    return Characterization(recordings=(replace(request.recording, status=answer.status, reason=answer.reason),))


def show(seen: CharacterizeAnswer, options: Namespace) -> None:
    """Data on stdout, and everything where --out says. Raises StoreFault."""
    from reports.characterize import answer
    from reports.characterize.sections import to_text

    show_answer(
        options.format,
        lambda width, colour: to_text(seen, width, colour),
        lambda: answer.document(seen),
        lambda: answer.groups_csv(seen),
    )
    if options.out is not None:
        write_report(seen, options.out)
        say(f"written to {options.out}")


def _code(data: Characterization) -> int:
    statuses = {each.status for each in data.recordings} - {"ok"}
    if not statuses:
        return 0
    return MISTAKE if statuses & set(ASKED_WRONGLY) else FAILED
