"""`python -m runners.doctor`: is this machine fit to measure on, and what does each absence cost?

Prints one line a fact: device, driver, torch, counters, telemetry, permissions, other users of the GPU. It changes no
setting and measures nothing but clock and units of a CPU that would be measured on. `--peaks NAME` prints the
datasheet's dense peaks of a device instead, each with its source and how it was verified, or what a CPU's core does in
a clock, or exits with 2 for a name that no table holds: a device is never guessed.
`--self-test` runs known work on the device and says whether numbers of this program may be believed there. `--commit`
writes which commit this is into the file COMMIT, for a machine without git.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices import peaks, processors
from analysis.devices.device_peak import name_refusal
from analysis.devices.precisions import UNITS
from reports.shared.layout import Column, Hanging, Part, Styled, TextTable, csv_of, page, strong
from results.errors import StoreFault, Unavailable
from runners.cli.arguments import names
from runners.cli.exits import FAILED, Mistake, as_mistake, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import json_text, put, reserve, say, show_answer

if TYPE_CHECKING:
    from runners.doctor.checks import Check

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
"""What a unit means where its name does not say so; the others are tensor units with fp32 accumulation."""


SELF_TEST_SAYS = {
    "ok": "No check failed: what was known came out. Those that are unavailable say what is not known here.",
    "failed": "A check failed: numbers that depend on it must not be believed on this device.",
}
STAND_IN_SAYS = "This device is a stand-in that computes nothing: the answer is one about this program alone."

PEAKS_SAY = "Utilization divides by the dense peak of the unit that runs an operation; a multiply-add is 2 FLOP."


CORES_SAY = "A CPU's peak is cores × FLOP a clock × clock; --peaks cpu measures the clock here, and gives it."


def _checks(text: str) -> tuple[str, ...]:
    from runners.doctor.self_test import CHECKS, GROUPS

    return names("check", [*CHECKS, *GROUPS])(text)


OF_SELF_TEST = ("device", "save", "write", "only", "budget")
"""Options that only --self-test has."""

OPTIONS: Options = {
    "--peaks": {
        "metavar": "NAME",
        "help": 'print the dense peaks of a device, e.g. "NVIDIA L40S"; cpu: of this processor',
    },
    "--self-test": {"action": "store_true", "help": "known work: may numbers be believed here? (3 minutes)"},
    "--commit": {
        "action": "store_true",
        "help": "write which commit this is into COMMIT, for a machine without git",
    },
    "device": {"default": None, "help": "of --self-test: auto, cuda, cuda:1 or cpu (auto)"},
    "--save": {
        "type": Path,
        "metavar": "FILE",
        "help": "of --self-test: keep the answer as JSON, to attach to a report",
    },
    "--write": {"type": Path, "metavar": "RUN", "help": "of --self-test: keep it with this run"},
    "--only": {"type": _checks, "metavar": "NAMES", "help": "of --self-test: checks, separated by commas"},
    "budget": {"help": "of --self-test: no check is begun after so many seconds"},
    "format": {},
    "out": {"default": RUNS, "help": f"where runs are kept (default: {RUNS})"},
}


def main(arguments: list[str] | None = None) -> int:
    """Print the answer; 0: fit (or peaks known), 1: something needed is missing, 2: the caller's mistake."""
    options = parser_of("doctor", DESCRIPTION, {"": OPTIONS}).parse_args(arguments)
    return guarded(lambda: _answered(options))


def _answered(options: Namespace) -> int:
    """Prints what was asked for; the exit code."""
    if options.commit:
        return print_commit()
    if options.self_test and options.peaks is not None:
        raise Mistake("--peaks: expected without --self-test")
    if options.self_test:
        device = "auto" if options.device is None else options.device
        limits = {"only": options.only or (), "budget_s": math.inf if options.budget is None else options.budget}
        return print_self_test(device, options.format, options.save, options.write, limits)
    for name in OF_SELF_TEST:
        if getattr(options, name) is not None:
            raise Mistake(f"--{name}: expected with --self-test")
    if options.peaks is not None:
        return print_peaks(options.peaks, options.format)
    from runners.doctor.checks import all_checks, is_fit

    lines = all_checks(options.out)
    if any(line.topic == "device" and line.fact.startswith("cpu: ") for line in lines):
        from runners.doctor.checks import processor_checks

        lines += processor_checks(_torch_threads())
    show_answer(
        options.format,
        lambda width, colour: page(checks_table(lines), width, colour),
        lambda: checks_document(lines),
        lambda: csv_of([_as_row(line) for line in lines]),
    )
    return 0 if is_fit(lines) else FAILED


def print_commit() -> int:
    """Writes the file COMMIT of this checkout. Raises Mistake for one that is not committed, StoreFault."""
    from results.store.manifest import COMMIT_FILE, ROOT, write_commit

    with as_mistake(ValueError):
        lines = write_commit(ROOT)
    put(ROOT / COMMIT_FILE, lines)
    print(f"{COMMIT_FILE}: {lines.splitlines()[0]}")
    return 0


def _torch_threads() -> int:
    import torch

    return int(torch.get_num_threads())


def print_peaks(name: str, form: str) -> int:
    """Print the peaks of the device of this name, or exit with 2 and the nearest names."""
    if name.casefold() in (processors.HERE, *(each.casefold() for each in processors.names())):
        return print_core_peaks(name, form)
    if why := name_refusal(name):
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


def print_core_peaks(name: str, form: str) -> int:
    """Print what a core of a CPU does in a clock, and of this machine's the derived peak. Raises Mistake."""
    from runners.doctor.checks import peaks_answer

    with as_mistake(Unavailable, about=f"--peaks {name}: "):
        answer = peaks_answer(name, _torch_threads() if name.casefold() == processors.HERE else 1)
    rows: list[dict[str, Any]] = answer["units"]
    heads = ("unit", "instructions", "a clock", "FLOP a clock", "GFLOP/s", "source")
    cells = [
        (
            row["unit"],
            row["instructions"],
            row["per_clock"],
            f"{row['flop_per_clock']:g}",
            "" if row["derived_flop_per_s"] is None else f"{row['derived_flop_per_s'] / 1e9:,.0f}",
            row["source"],
        )
        for row in rows
    ]
    _show(form, [*_table(f"{answer['device']}: one core in one clock", heads, cells), "", CORES_SAY], answer, rows)
    return 0


def _show(form: str, parts: Sequence[Part], document: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    show_answer(form, lambda width, colour: page(parts, width, colour), lambda: document, lambda: csv_of(rows))


def print_self_test(
    device: str, form: str, save: Path | None = None, run: Path | None = None, limits: Mapping[str, Any] | None = None
) -> int:
    """Print the checks of known work on a device; FAILED where one fails.

    save: a new file for the document, written after each check. run: a directory to keep it in as well. limits: which
    checks, and for how long, as `self_test` takes them. Raises Mistake for no such device, a file
    that exists or no such directory, StoreFault for what cannot be written, all of them before anything is measured.
    """
    from runners.doctor.self_test import self_test

    device, places = _device(device), _places(save, run)
    answer = self_test(device, say, **(limits or {}), keep=lambda part: _put(places, json_text(part)))
    unwritten = _put(places, json_text(answer))
    rows = [(c["check"], c["verdict"], _number_text(c["found"]), c["expected"], c["reason"]) for c in answer["checks"]]
    parts: list[Part] = [strong(SELF_TEST_SAYS[answer["verdict"]])]
    parts += [STAND_IN_SAYS] if answer["stand_in"] else []
    heads = ("check", "verdict", "found", "expected", "reason")
    parts += ["", *_table(f"{answer['device']}: known work", heads, rows)]
    _show(form, parts, answer, answer["checks"])
    if unwritten:
        raise unwritten
    return FAILED if answer["verdict"] == "failed" else 0


def _put(places: list[Path], document: str) -> StoreFault | None:
    """Writes the document; the first fault, as what was measured is worth printing all the same."""
    faults = []
    for place in places:
        try:
            put(place, document)
        except StoreFault as fault:
            faults.append(fault)
    return faults[0] if faults else None


def _places(save: Path | None, run: Path | None) -> list[Path]:
    """Files for the self-test's document, in which something can be written. Raises Mistake, StoreFault."""
    from cleaning.facts.self_test import SELF_TEST_FILE

    if save is not None and save.exists():
        raise Mistake(f"--save: expected a new file, got {save}, which exists: no answer is overwritten")
    if run is not None and not run.is_dir():
        raise Mistake(f"--write: expected the directory of a run, got {run}, which is none")
    places = [*filter(None, (save, run / SELF_TEST_FILE if run is not None else None))]
    for place in places:
        reserve(place)
    return places


def _number_text(found: float | None) -> str:
    return "" if found is None else f"{found:.5g}"


def _device(name: str) -> str:
    """The device that is meant; "auto" is the first GPU, else the CPU. Raises Mistake where there is none such."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if count else "cpu"
    gpus = ["cuda", *(f"cuda:{index}" for index in range(count))] if count else []
    if name not in ("cpu", *gpus):
        known = f"auto, cpu, {', '.join(gpus)}" if gpus else "auto or cpu, as torch sees no CUDA device"
        raise Mistake(f"no such device: expected {known}, got {name!r}")
    return name


def peaks_answer(device: peaks.Device, asked: str) -> dict[str, Any]:
    """The JSON document of `--peaks`: FLOP/s by unit, None where the sheet gives no figure."""
    units = (*UNITS, *peaks.EXTRA_UNITS)
    return {
        "device": peaks.spelling(device, asked),
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
    """The same for a reader: TFLOP/s and MHz, then source, evidence and note."""
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


def checks_table(lines: list[Check]) -> list[Part]:
    """A sentence, then one line a fact, the state as a word."""
    rows = [(line.topic, line.state, line.fact, line.cost) for line in lines]
    return [strong(verdict(lines)), "", *_table("", ("what", "state", "fact", "cost"), rows)]


def verdict(lines: list[Check]) -> str:
    """One sentence: fit or not, and how much is lost."""
    lacking = [line.topic for line in lines if line.needed and line.state == "missing"]
    if lacking:
        return f"Not fit to measure: {', '.join(lacking)} missing."
    warned, missing = (sum(line.state == state for line in lines) for state in ("warn", "missing"))
    device = next((line.fact.partition(",")[0] for line in lines if line.topic == "device"), "an unknown device")
    return f"Fit to measure on {device}; {_count(warned, 'warning')}, {_count(missing, 'optional thing')} missing."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def checks_document(lines: list[Check]) -> dict[str, Any]:
    """One document: the verdict, the lines, and the environment as the manifest records it."""
    from measure.device.environment import environment
    from runners.doctor.checks import is_fit

    return {
        "fit": is_fit(lines),
        "checks": [_as_row(line) for line in lines],
        "environment": environment().as_json(),
    }


def _as_row(line: Check) -> dict[str, Any]:
    return {"topic": line.topic, "state": line.state, "fact": line.fact, "cost": line.cost, "needed": line.needed}


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Part]:
    """A table; nothing in it is said by colour alone."""
    numbers = ("TFLOP/s", "at MHz", "a clock", "FLOP a clock", "GFLOP/s")
    words = ("source", "fact", "cost", "expected", "reason", "what runs it")
    columns = [
        Column(name, right=name in numbers, wraps=name in words, rank=int(name == "verification")) for name in header
    ]
    cells = [[Styled(cell, _STYLES.get(cell, "")) for cell in row] for row in rows]
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


def _paragraph(label: str, text: str) -> Hanging:
    return Hanging(f"{label}:", text, 11)
