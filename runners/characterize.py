"""`python -m runners.characterize`: how do workloads differ in operation mix, similarity, device use and parallelism?

A worker runs each workload and returns the recorded rows; a workload that fails costs one row. The answer is computed
from rows only, so that `python -m runners.characterize DIR` shows it again without torch. The command prints the
answer, and `--out` writes rows, derived tables and figures. After every recording each file of rows is replaced whole,
`recordings.csv` last, so that a kill leaves earlier rows whole. A workload's operation mix comes from one recording per
mode and device, with the first thread count and batch size. Further recordings, which show parallelism, change one
setting of training, or of inference if that is the only mode. Exit codes: 0 all were recorded; 1 some were not; 2 the
caller's mistake; 3 a file could not be written; 130 Ctrl-C, after the rows so far.
"""

from __future__ import annotations

import gzip
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import Unavailable
from results.records.characterization import FILES, MODES, Characterization, WorkloadRecording
from results.store.layout import read_table
from runners.cli.arguments import names, number
from runners.cli.exits import FAILED, INTERRUPTED, MISTAKE, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import json_text, reserve, say, show_answer, show_transient, write_file
from runners.workers import devices
from runners.workers.pool import CALLER_MISTAKES, WorkerFault
from workloads.catalogue.catalogue import ENTRIES, OPTIMIZERS, entry, reason_not_trainable
from workloads.catalogue.entries import AS_CODED, AS_PAPER, SMALL
from workloads.catalogue.model_names import check
from workloads.catalogue.suites import SUITES

if TYPE_CHECKING:
    from reports.characterize import CharacterizeAnswer

OWN = "own"
"""Value of --optimizer for the optimizer that the workload brings itself."""

BOTH = "both"
BATCH = 8
STEPS = 12
TIMEOUT_S = 1800.0

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
            "choices": ("fathom",),
            "help": "compare Fathom's eight, at small sizes, with the paper's numbers",
        },
        "--variant": {"choices": (AS_CODED, AS_PAPER, BOTH), "help": "for workloads that have two variants (as_coded)"},
        "--scale": {
            "choices": ("own", "small"),
            "help": "small: sizes for a CPU, where there are some (own; with --reproduce small)",
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
        "timeout": {"default": TIMEOUT_S, "help": f"seconds for one recording ({TIMEOUT_S:g})"},
    },
    "the report": {
        "ceilings": {"help": "ceilings.csv, for the share of the peak that each group reaches"},
        "out": {"help": "write the recordings, tables and figures here"},
        "format": {"help": "table, csv (of shares) or json (table)"},
    },
}

parser = partial(
    parser_of,
    "characterize",
    "How do workloads differ: operation mix, similarity, training against inference, parallelism?",
    OPTIONS,
    "What each number means, and where its formula comes from: docs/characterize.md.",
)

FIRST = next(iter(FILES))


def reserve_new(out: Path) -> None:
    """Make sure that rows can be written there, and that there are none yet. Raises Mistake, StoreFault."""
    if (out / FIRST).exists():
        raise Mistake(f"--out: expected a directory without {FIRST}, got {out}; report it without --models")
    if out.exists() and not out.is_dir():
        raise Mistake(f"--out: expected a directory, got the file {out}")
    reserve(out / FIRST)


def write_rows(data: Characterization, out: Path) -> None:
    """Write the files of rows. Raises StoreFault."""
    from reports.shared.layout import to_csv

    for name, rows in reversed(data.rows().items()):
        text = to_csv(rows, FILES[name]).encode()
        write_file(out / name, gzip.compress(text, mtime=0) if name.endswith(".gz") else text)


def read_rows(directory: Path) -> Characterization:
    """Return the rows in a directory. Raises Mistake for a directory without a characterization, or with a
    damaged one."""
    if not (directory / FIRST).is_file():
        has = "has none" if directory.is_dir() else "is no directory"
        raise Mistake(f"expected a directory with {FIRST}, got {directory}, which {has}")
    files = []
    for name, record in FILES.items():
        path = directory / name
        try:
            files.append(tuple(read_table(path, record)))
        except (OSError, ValueError) as fault:
            cause = getattr(fault, "strerror", None) or fault
            raise Mistake(f"expected {path} as runners.characterize writes it, got: {cause}") from fault
    return Characterization(*files)  # type: ignore[arg-type]


def models_of(options: Namespace) -> tuple[str, ...]:
    """Return the requested names, in their variant and scale. Raises Mistake for an unknown name."""
    if sum(name is not None for name in (options.models, options.suite, options.reproduce)) != 1:
        raise Mistake("expected one of --models, --suite, --reproduce, or a directory to report")
    suite = options.suite or options.reproduce
    wanted = options.models or SUITES[suite].models
    small = options.scale == "small" or (options.reproduce is not None and options.scale is None)
    variants = (AS_CODED, AS_PAPER) if options.variant == BOTH else (options.variant,)
    models = tuple(dict.fromkeys(_named(name, variant, small) for variant in variants for name in wanted))
    for name in models:
        with as_mistake(ValueError, Unavailable):
            check(name)
    return models


def _named(name: str, variant: str | None, small: bool) -> str:
    """Return the entry of a variant and scale, where the workload has it; else the name as it is."""
    scale = SMALL if small or name.endswith(SMALL) else ""
    base = name.removesuffix(SMALL)
    if variant == AS_PAPER and f"{base}@{AS_PAPER}" in ENTRIES:
        base = f"{base}@{AS_PAPER}"
    return f"{base}{scale}" if f"{base}{scale}" in ENTRIES else name


def recordings(options: Namespace, devices: Sequence[str]) -> list[WorkloadRecording]:
    """Return all recordings, a workload's together. devices: as they were found. Raises Mistake for a batch that a
    workload cannot take."""
    firsts = [_first(model, options, devices[0]) for model in models_of(options)]
    wanted = [recording for first in firsts for recording in _recordings(first, options, devices)]
    return [replace(recording, recording=index) for index, recording in enumerate(wanted)]


def _first(model: str, options: Namespace, device: str) -> WorkloadRecording:
    known = ENTRIES.get(model)
    batch_size = next(iter(options.batch_sizes), 0) or (known.batch_size if known is not None else 0) or BATCH
    if known is not None:
        reason = reason_not_trainable(model, _hyper(model, options), batch_size)
        if reason is not None:
            raise Mistake(f"{reason} (batch size {batch_size})")
    own = known is not None and bool(known.optimizer)
    return WorkloadRecording(
        recording=0,
        workload=model,
        variant=known.variant if known is not None else "",
        batch_size=batch_size,
        device=device,
        threads=options.threads[0] if device == "cpu" else None,
        precision=options.precision,
        layout=options.layout,
        optimizer=options.optimizer if options.optimizer != OWN or own else "sgd",
    )


def _recordings(first: WorkloadRecording, options: Namespace, devices: Sequence[str]) -> Iterator[WorkloadRecording]:
    modes = options.modes
    for device in devices:
        threads = options.threads if device == "cpu" else (None,)
        here = replace(first, device=device, threads=threads[0])
        inferring = replace(here, mode="inference", optimizer="")
        for mode in modes:
            yield here if mode == "training" else inferring
        varied = here if "training" in modes else inferring
        for count in threads[1:]:
            yield replace(varied, threads=count, why="threads")
        for size in options.batch_sizes[1:]:
            yield replace(varied, batch_size=size, why="batch")


def _hyper(model: str, options: Namespace) -> dict[str, Any]:
    """Return the sizes of --size that the workload has; a model of another form than the catalogue's takes all."""
    sizes = dict(options.hyper or {})
    return {name: value for name, value in sizes.items() if model not in ENTRIES or name in entry(model).hyper}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    """Do everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    peaks = _peaks(options)
    notes: tuple[str, ...] = ()
    if options.directories:
        data, interrupted = _read(options), False
    else:
        for device in options.device:
            devices.check_name(device)
        recordings(options, ["cpu"])  # raises Mistake for what cannot be, before anything slow is imported or written
        if options.out is not None:
            reserve_new(options.out)
        data, notes, interrupted = _record_all(options)
    from reports.characterize import analyse

    seen = analyse(data, notes, reproduce=options.reproduce or "", peaks=peaks)
    show(seen, options)
    if interrupted:
        return INTERRUPTED
    statuses = {recording.status for recording in data.recordings} - {"ok"}
    return 0 if not statuses else MISTAKE if statuses & set(CALLER_MISTAKES) else FAILED


def _peaks(options: Namespace) -> dict[str, float]:
    """Return unit → the best FLOP/s in --ceilings, at the thread count of the shares; empty without a file."""
    if options.ceilings is None:
        return {}
    from analysis.devices import peaks
    from analysis.devices.ceilings import best, impossible
    from runners.ceiling import read_ceilings

    with as_mistake(ValueError, about="--ceilings: "):
        rows = read_ceilings(options.ceilings)
    rows = [row for row in rows if row.threads in (None, options.threads[0])]
    fastest = {unit: best(rows, unit) for unit in {row.unit for row in rows if row.unit}}
    return {
        unit: row.flop_per_s
        for unit, row in fastest.items()
        if row is not None and row.flop_per_s and not impossible(rows, unit, peaks.lookup(row.device_name))
    }


def _read(options: Namespace) -> Characterization:
    for name in ("models", "suite"):
        if getattr(options, name) is not None:
            raise Mistake(f"expected directories to report or --{name}, got both")
    data = Characterization()
    for directory in options.directories:
        more = read_rows(directory)
        if twice := set(map(_recording_label, data.recordings)) & set(map(_recording_label, more.recordings)):
            same = min(twice)[0]
            raise Mistake(f"expected recordings that differ, got {same} recorded the same way in {directory}, too")
        data = data.with_rows(more.numbered_from(len(data.recordings)))
    if len(options.directories) == 1:
        options.out = options.out or options.directories[0]
    elif options.out is not None:
        reserve_new(options.out)
        write_rows(data, options.out)
    return data


def _recording_label(recording: WorkloadRecording) -> tuple[str, ...]:
    """Name a recording in a few words, its workload first."""
    names = "workload mode batch_size hyper device threads precision layout execution optimizer seed"
    return tuple(str(getattr(recording, name)) for name in names.split())


def _record_all(options: Namespace) -> tuple[Characterization, tuple[str, ...], bool]:
    """Record all; return the rows, notes about all of them, and whether Ctrl-C ended it."""
    from runners.workers.pool import Worker, prepare

    prepare()
    worker = Worker("characterize")
    data, interrupted = Characterization(), False
    notes: tuple[str, ...] = ()
    try:
        probed = [devices.probed_device(worker, device) for device in options.device]
        for probe in probed:
            if options.precision in probe.refused:
                raise Mistake(f"--precision: {probe.refused[options.precision]}")
            notes += devices.busy(probe.device, probe.environment)
        by_device = {probe.device: probe for probe in probed}
        wanted = recordings(options, list(by_device))
        only = len({recording.workload for recording in wanted}) == 1
        for index, recording in enumerate(wanted):
            what = f"{recording.workload}, {recording.mode}, {recording.device}, {recording.why}"
            show_transient(f"[{index + 1}/{len(wanted)}] {what}")
            probe = by_device[recording.device]
            version = probe.environment.get("torch") or ""
            request = replace(recording, device_name=probe.name, torch_version=version)
            data = data.with_rows(_recorded(worker, request, options, only=only and not data.recordings))
            if options.out is not None:
                write_rows(data, options.out)
            worker.stop()  # so that the next one's memory is its own
    except KeyboardInterrupt:
        if not data.recordings:
            raise
        interrupted, notes = True, (*notes, "interrupted: what was not recorded is missing")
    finally:
        show_transient("")
        worker.stop()
    return data, notes, interrupted


def _recorded(worker: Any, request: WorkloadRecording, options: Namespace, *, only: bool) -> Characterization:
    """Return the rows of one recording; if it failed, its own row with the reason.

    Raises Mistake for an impossible recording of the only workload.
    """
    start_s = time.monotonic()
    singly = options.alone and request.why == "mix"
    answer: Characterization | WorkerFault = worker.call(
        "runners.workers.step_tasks:record", request, _hyper(request.workload, options), options.steps, singly,
        timeout_s=options.timeout,
    )  # fmt: skip
    if not isinstance(answer, WorkerFault):
        (recording,) = answer.recordings
        return replace(answer, recordings=(replace(recording, took_s=time.monotonic() - start_s),))
    show_transient("")
    if only and answer.status in CALLER_MISTAKES:
        raise Mistake(answer.reason)
    say(f"warning: {request.workload}: {answer.status.replace('_', ' ')}: {answer.reason}")
    return Characterization(recordings=(replace(request, status=answer.status, reason=answer.reason),))


def show(seen: CharacterizeAnswer, options: Namespace) -> None:
    """Print the answer on stdout, and write it to --out: the derived tables, the report, then the figures, so that a
    figure that fails loses no table. Raises StoreFault."""
    from reports import characterize as answer
    from reports.characterize_text import to_text
    from reports.shared import figure_style

    show_answer(
        options.format,
        lambda width, colour: to_text(seen, width, colour),
        lambda: answer.document(seen),
        lambda: answer.groups_csv(seen),
    )
    if (out := options.out) is not None:
        files = {**answer.tables(seen), "characterize.json": json_text(answer.document(seen))}
        for name, text in {**files, "characterize.txt": to_text(seen)}.items():
            write_file(out / name, text)
        for name, content in figure_style.render_all(lambda: answer.figures(seen)).items():
            write_file(out / "figures" / name, content)
        say(f"written to {out}")


if __name__ == "__main__":
    sys.exit(exit_code(main))
