"""`python -m runners.doctor`: is this machine fit to measure on, and what does each absence cost?

The command prints one line per fact: device, driver, torch, counters, telemetry, permissions, other users of the GPU.
The command changes no setting. `--peaks NAME` instead prints the dense peaks of a device from its datasheet, each with
its source and how it was verified. A name that the table lacks ends the command with exit code 2: a device is never
guessed. `--self-test` runs known work on the device and reports whether this program's numbers may be believed there.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices import peaks
from analysis.devices.precisions import UNITS
from reports.shared.layout import HangingIndent, Part, StyledText, TableColumn, TextTable, csv_of, page, strong
from results.errors import StoreFault
from runners.cli.arguments import names
from runners.cli.exits import FAILED, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import json_text, reserve, say, show_answer, write_file

if TYPE_CHECKING:
    from runners.machine_checks import Check

RUNS = Path("results/runs")

DESCRIPTION = "Is this machine fit to measure on, and what does each absence cost? With --peaks: what a datasheet says."

UNIT_NOTES = {
    "fp64": "vector units (CUDA cores)",
    "fp32": "vector units (CUDA cores)",
    "int8": "tensor units, int32 accumulation",
    "mxfp8": "tensor units, block scales; for reading only",
    "fp6": "tensor units, block scales; for reading only",
    "fp4": "tensor units, block scales; for reading only",
    "fp64_tensor": "tensor units; for reading only",
    "fp16_fp16acc": "fp16 accumulation; for reading only",
    "fp16_cuda_core": "without tensor units; for reading only",
}
"""Unit → its meaning where its name is not clear; all other units are tensor units with fp32 accumulation."""


SELF_TEST_VERDICTS = {
    "ok": "No check failed. A check that is unavailable says why it cannot be answered on this device.",
    "failed": "A check failed: numbers that depend on it must not be believed on this device.",
}
STAND_IN_NOTE = "This device is a stand-in that computes nothing: the answer is one about this program alone."

PEAKS_SAY = "Utilization divides by the dense peak of the unit that runs an operation; a multiply-add is 2 FLOP."


def _checks(text: str) -> tuple[str, ...]:
    from runners.self_test import CHECKS, GROUPS

    return names("check", [*CHECKS, *GROUPS])(text)


OF_SELF_TEST = ("device", "save", "write", "only", "budget")
"""Options that require --self-test."""

OPTIONS: Options = {
    "--peaks": {
        "metavar": "NAME",
        "help": 'print the dense peaks of a device, e.g. "NVIDIA L40S"',
    },
    "--self-test": {"action": "store_true", "help": "check measured numbers against known work (3 minutes)"},
    "device": {"default": None, "help": "with --self-test: auto, cuda, cuda:1 or cpu (auto)"},
    "--save": {
        "type": Path,
        "metavar": "FILE",
        "help": "with --self-test: keep the answer as JSON, to attach to a report",
    },
    "--write": {"type": Path, "metavar": "RUN", "help": "with --self-test: keep the answer with this run"},
    "--only": {"type": _checks, "metavar": "NAMES", "help": "with --self-test: checks to run, separated by commas"},
    "budget": {"help": "with --self-test: seconds after which no check is started"},
    "format": {},
    "out": {"default": RUNS, "help": f"where runs are kept (default: {RUNS})"},
}


def main(arguments: list[str] | None = None) -> int:
    """Print the answer; return its exit code. 0: fit, peaks known, or no check of the self-test failed; 1: something
    needed is missing, or a check failed; 2: the caller's mistake; 3: a file could not be written."""
    options = parser_of("doctor", DESCRIPTION, {"": OPTIONS}).parse_args(arguments)
    return guarded(lambda: _answered(options))


def _answered(options: Namespace) -> int:
    """Print the answer; returns the exit code."""
    if options.self_test and options.peaks is not None:
        raise Mistake("--peaks: expected without --self-test")
    if options.self_test:
        return print_self_test(options)
    for name in OF_SELF_TEST:
        if getattr(options, name) is not None:
            raise Mistake(f"--{name}: expected with --self-test")
    if options.peaks is not None:
        return print_peaks(options.peaks, options.format)
    from measure.device.environment import environment
    from runners.machine_checks import all_checks, is_fit

    lines = all_checks(options.out)
    fit, rows = is_fit(lines), [vars(line) for line in lines]
    document = {"fit": fit, "checks": rows, "environment": environment()}
    cells = [(line.topic, line.state, line.fact, line.cost) for line in lines]
    table = [strong(verdict(lines)), "", *_table("", ("what", "state", "fact", "cost"), cells)]
    _show(options.format, table, document, rows)
    return 0 if fit else FAILED


def print_peaks(name: str, form: str) -> int:
    """Print the peaks of the device of this name, or exit with 2 and the nearest names."""
    if why := peaks.name_refusal(name):
        raise Mistake(f"no peaks for {name!r}: expected a device with one peak, this is {why}")
    with as_mistake(ValueError):
        answer = peaks_answer(peaks.device_called(name), name)
    rows = [
        {
            "device": answer["device"],
            "unit": unit,
            "peak_flop_per_s": peak,
            "clock_hz": answer["clock_hz"][unit],
            "verification": answer["verified"][unit],
            "source": answer["source"],
        }
        for unit, peak in answer["peaks"].items()
    ]
    _show(form, peaks_table(answer), answer, rows)
    return 0


def _show(form: str, parts: Sequence[Part], document: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    show_answer(form, lambda width, colour: page(parts, width, colour), lambda: document, lambda: csv_of(rows))


def print_self_test(options: Namespace) -> int:
    """Run and print the checks of known work on a device; return FAILED if one fails.

    With --save or --write the document is written after each check. Raises, before anything is measured, Mistake for an
    unknown device, an existing file or a missing directory, and StoreFault for a file that cannot be written. If the
    last write fails, StoreFault is raised after the answer was printed.
    """
    from cleaning.gates.evidence import SELF_TEST_FILE
    from runners.self_test import self_test

    device = _device("auto" if options.device is None else options.device)
    save, run = options.save, options.write
    if save is not None and save.exists():
        raise Mistake(f"--save: expected a new file, got {save}, which exists: no answer is overwritten")
    if run is not None and not run.is_dir():
        raise Mistake(f"--write: expected the directory of a run, got {run}, which is none")
    paths = [*filter(None, (save, run / SELF_TEST_FILE if run is not None else None))]
    for path in paths:
        reserve(path)
    budget_s = math.inf if options.budget is None else options.budget
    answer = self_test(device, say, options.only or (), budget_s, keep=lambda part: _put(paths, part))
    unwritten = _put(paths, answer)
    cells = [
        (c["check"], c["verdict"], "" if c["found"] is None else f"{c['found']:.5g}", c["expected"], c["reason"])
        for c in answer["checks"]
    ]
    parts: list[Part] = [strong(SELF_TEST_VERDICTS[answer["verdict"]])]
    parts += [STAND_IN_NOTE] if answer["stand_in"] else []
    heads = ("check", "verdict", "found", "expected", "reason")
    parts += ["", *_table(f"{answer['device']}: known work", heads, cells)]
    _show(options.format, parts, answer, answer["checks"])
    if unwritten:
        raise unwritten
    return FAILED if answer["verdict"] == "failed" else 0


def _put(paths: list[Path], document: Any) -> StoreFault | None:
    """Write the document; return the first fault, since the measurement is printed all the same."""
    faults = []
    for path in paths:
        try:
            write_file(path, json_text(document))
        except StoreFault as fault:
            faults.append(fault)
    return faults[0] if faults else None


def _device(name: str) -> str:
    """Return the device of this name; "auto" is the first GPU, else the CPU. Raises Mistake if it does not exist."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if count else "cpu"
    gpus = ["cuda", *(f"cuda:{index}" for index in range(count))] if count else []
    if name not in ("cpu", *gpus):
        known = f"auto, cpu, {', '.join(gpus)}" if gpus else "auto or cpu, as torch sees no CUDA device"
        raise Mistake(f"no such device: expected {known}, got {name!r}")
    return name


def peaks_answer(device: peaks.Device, name: str) -> dict[str, Any]:
    """Return the JSON document of `--peaks`: FLOP/s by unit, None where the sheet gives no figure."""
    units = (*UNITS, *peaks.EXTRA_UNITS)
    return {
        "device": peaks.spelling(device, name),
        "peaks": {unit: device.peaks.get(unit) for unit in units},
        "sparse": {unit: device.sparse.get(unit) for unit in units},
        "refused": dict(device.refused),
        "bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
        "source": device.source,
        "verification": device.verification,
        "verified": {figure: device.verified.get(figure) for figure in (*units, "bandwidth")},
        "clock_hz": {unit: device.clock_hz.get(unit) for unit in units},
        "multiprocessors": device.multiprocessors,
        "compute_capability": device.compute_capability,
        "evidence": device.evidence,
        "note": device.note,
        "row_id": device.row_id,
        "table_digest": peaks.table_digest(),
    }


def peaks_table(answer: Mapping[str, Any]) -> list[Part]:
    """Return the peaks for a reader: TFLOP/s and MHz, then source, evidence and note."""
    cells = []
    for unit, peak in answer["peaks"].items():
        if peak is None and unit in peaks.SMALL_UNITS:
            continue
        clock = answer["clock_hz"][unit]
        figure = "none" if peak is None else f"{peak / 1e12:,.5g}"
        note = UNIT_NOTES.get(unit, "tensor units, fp32 accumulation")
        mhz = "" if clock is None else f"{clock / 1e6:.0f}"
        cells.append((unit, figure, mhz, answer["verified"][unit] or "", note))
    heads = ("unit", "TFLOP/s", "at MHz", "verification", "what runs it")
    parts: list[Part] = [*_table(f"{answer['device']}: dense peaks", heads, cells), ""]
    bandwidth = answer["bandwidth_bytes_per_s"]
    shown = "unknown" if bandwidth is None else f"{bandwidth / 1e9:,.0f} GB/s ({answer['verified']['bandwidth']})"
    parts += [
        _paragraph("bandwidth", shown),
        *(_paragraph(f"no {unit}", reason) for unit, reason in answer["refused"].items()),
        _paragraph("source", f"{answer['source']} ({answer['verification']})"),
        *(_paragraph(label, answer[label]) for label in ("evidence", "note") if answer[label]),
    ]
    return [*parts, "", PEAKS_SAY]


def verdict(lines: list[Check]) -> str:
    """Return one sentence: fit or not, and how much is lost."""
    lacking = [line.topic for line in lines if line.needed and line.state == "missing"]
    if lacking:
        return f"Not fit to measure: {', '.join(lacking)} missing."
    warned, missing = (sum(line.state == state for line in lines) for state in ("warn", "missing"))
    device = next((line.fact.partition(",")[0] for line in lines if line.topic == "device"), "an unknown device")
    lost = f"{warned} warning{'s' * (warned != 1)}, {missing} optional thing{'s' * (missing != 1)} missing"
    return f"Fit to measure on {device}; {lost}."


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Part]:
    """Return a table; nothing in it is shown by colour only."""
    wrapping = ("fact", "cost", "expected", "reason", "what runs it")
    columns = [
        TableColumn(name, right=name in ("TFLOP/s", "at MHz"), wraps=name in wrapping, rank=int(name == "verification"))
        for name in header
    ]
    cells = [[StyledText(cell, _STYLES.get(cell, "")) for cell in row] for row in rows]
    return [*([strong(title)] if title else []), TextTable(columns, cells)]


_STYLES = {
    "ok": "green",
    "failed": "red",
    "unavailable": "yellow",
    "reported": "yellow",
    "warn": "yellow",
    "missing": "red",
    "memory": "yellow",
}


def _paragraph(label: str, text: str) -> HangingIndent:
    return HangingIndent(f"{label}:", text, 11)


if __name__ == "__main__":
    sys.exit(exit_code(main))
