"""`python -m runners.profile MODEL`: where do time, FLOP, bytes and parameters go, and what bounds each part?

A worker measures the ceilings (the highest rates of this device), builds the model and profiles its steps. The parent
imports no torch, prints the report, and writes tables and a page with `--out`. Exit codes: 0 profiled; 1 the model
could not be profiled, or the profile's sums do not add up; 2 the caller's mistake, such as a model that does not take
its inputs; 3 a file could not be written; 130 Ctrl-C. `--config` takes a DeepSpeed configuration, or only its section
"flops_profiler", with DeepSpeed's names. Options of the command line override it. Steps before `start_step` warm up,
and later steps before `end_step` are profiled, as in DeepSpeed's tutorial. Newer DeepSpeed silently ignores both.
"""

from __future__ import annotations

import argparse
import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.shared.layout import csv_of
from results.text_files import json_value, read_text
from runners.cli.arguments import choice_error, names, number
from runners.cli.exits import FAILED, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import MODEL, MODEL_INPUT, Options, check_models, parser_of
from runners.cli.output import json_text, reserve, say, show_page, show_transient, with_install_hint, write_file
from runners.workers import devices
from runners.workers.pool import CALLER_MISTAKES, WorkerFault

if TYPE_CHECKING:
    from results.records.answers import Machine, StepProfile
    from results.records.cell import Ceiling

SECTION = "flops_profiler"

Setting = bool | int | float | str | Path | None
"""The value of one option."""

TYPES: dict[str, type] = {
    "enabled": bool,
    "profile_step": int,
    "start_step": int,
    "end_step": int,
    "module_depth": int,
    "top_modules": int,
    "detailed": bool,
    "output_file": str,
    "recompute_fwd_factor": float,
}
"""Key → type of its value. Every value may also be null, which is like a missing key."""

WANTED = {
    bool: "true or false",
    str: "a path",
    int: "a whole number of at least {}",
    float: "a number of at least {}",
}

LEAST = {"profile_step": 0, "start_step": 0, "end_step": 1, "module_depth": -1, "top_modules": 1}

DEFAULTS: dict[str, Setting] = {
    "warm_up": 2,
    "steps": 5,
    "module_depth": -1,
    "top_modules": 3,
    "detailed": True,
    "output_file": None,
    "recompute_fwd_factor": 0.0,
}
"""Values where neither the command line nor a file has one."""

TIMEOUT_S = 1800.0
COMPARED = 4
CEILING_S = 20.0

OPTIONS: Mapping[str, Options] = {
    "": {"model": {"metavar": "MODEL", "help": MODEL}},
    "the model and its batch": {**MODEL_INPUT, "layout": {}},
    "what is run": {
        "device": {},
        "precision": {},
        "--mode": {
            "choices": ("train", "forward", "generate"),
            "default": "train",
            "help": "train, forward (in eval mode) or generate",
        },
        "optimizer": {},
        "--steps": {"type": number(int, 1), "metavar": "N", "help": f"steps profiled ({DEFAULTS['steps']})"},
        "--warm-up": {"type": number(int, 0), "metavar": "N", "help": f"steps before them ({DEFAULTS['warm_up']})"},
        "--compare-steps": {
            "type": number(int, 0),
            "default": COMPARED,
            "metavar": "N",
            "help": f"steps timed without the profiler, for comparison ({COMPARED})",
        },
        "--ignore-modules": {
            "type": names("module"),
            "default": (),
            "metavar": "NAMES",
            "help": "classes or paths of modules to leave out",
        },
        "ceilings": {},
        "--ceiling-budget": {
            "type": number(float, 0),
            "default": CEILING_S,
            "metavar": "S",
            "help": f"seconds to measure ceilings where no file is given; 0: only the datasheet ({CEILING_S:g})",
        },
        "timeout": {"default": TIMEOUT_S, "help": f"seconds for the profile ({TIMEOUT_S:g})"},
    },
    "the report": {
        "--module-depth": {
            "type": number(int, -1),
            "metavar": "D",
            "help": "depth to which modules are shown; -1: all",
        },
        "--top-modules": {
            "type": number(int, 1),
            "metavar": "K",
            "help": f"classes in each ranking ({DEFAULTS['top_modules']})",
        },
        "--detailed": {"action": argparse.BooleanOptionalAction, "help": "show the tree of modules (yes)"},
        "--operations": {"action": "store_true", "help": "show operations, too; with csv: instead of modules"},
        "--recompute-fwd-factor": {
            "type": number(float, 0),
            "metavar": "R",
            "help": "share of the forward pass that activation checkpointing runs again, for a rate beside the "
            "measured one",
        },
        "--world-size": {
            "type": number(int, 1),
            "metavar": "N",
            "help": "devices that train together, a multiple of those that hold one model (as many as hold one)",
        },
        "--model-parallel": {
            "type": number(int, 1),
            "default": 1,
            "metavar": "N",
            "help": "devices that hold one model (1)",
        },
        "--config": {"type": Path, "metavar": "FILE", "help": "JSON settings with DeepSpeed's keys"},
        "format": {"help": "table, csv (of modules) or json (table)"},
        "--output-file": {
            "type": Path,
            "metavar": "FILE",
            "help": "write the report to this file instead of stdout",
        },
        "out": {"help": "write profile.html and its tables here"},
    },
}
"""Options that a file may have, too, are None if the command line does not have them."""

parser = partial(
    parser_of,
    "profile",
    "Where inside the model do time, FLOPs, bytes and parameters go, and what bounds each part?",
    OPTIONS,
    "Models of any form, and their inputs: docs/models.md. The report and its rules: docs/profile.md. --config takes "
    "a DeepSpeed configuration with flops_profiler, which options of the command line override.",
)


def merged(options: Namespace) -> Namespace:
    """Return the options of the command line, filled in from a file, else with defaults."""
    file = read(options.config) if options.config is not None else {}
    typed = {name: value for name, value in vars(options).items() if value is not None}
    return Namespace(**{**vars(options), **DEFAULTS, **file, **typed})


def read(path: Path) -> dict[str, Setting]:
    """Return a configuration file's settings by our names; `enabled` is ignored. Raises Mistake."""
    section = _section(path)
    for key, value in section.items():
        if key not in TYPES:
            raise Mistake(f"{path}: {choice_error('key', key, TYPES)}")
        kind, least = TYPES[key], LEAST.get(key, 0)
        if kind in (int, float):
            fits = isinstance(value, (int, kind)) and not isinstance(value, bool) and value >= least
        else:
            fits = isinstance(value, kind)
        if value is not None and not fits:
            raise Mistake(f"{path}: {key}: expected {WANTED[kind].format(least)}, got {json.dumps(value)}")
    known = {key: value for key, value in section.items() if value is not None}
    kinds = {"module_depth": int, "top_modules": int, "detailed": bool, "recompute_fwd_factor": float}
    settings: dict[str, Setting] = {key: kind(known[key]) for key, kind in kinds.items() if key in known}
    if known.get("output_file"):
        settings["output_file"] = Path(known["output_file"])
    return {**settings, **_steps(path, known)}


def _steps(path: Path, known: dict[str, Any]) -> dict[str, int]:
    """Return the numbers of steps to warm up and to profile. Steps are numbered from 0. `profile_step` alone sets only
    the warm-up; `start_step` without `end_step` profiles one step."""
    start = known.get("start_step", known.get("profile_step"))
    end = known.get("end_step")
    if start is None and end is None:
        return {}
    begin = 1 if start is None else int(start)
    if end is None:
        return {"warm_up": begin} | ({"steps": 1} if "start_step" in known else {})
    if end <= begin:
        raise Mistake(f"{path}: end_step: expected a step after {begin}, the first one profiled, got {end}")
    return {"warm_up": begin, "steps": int(end) - begin}


def _section(path: Path) -> dict[str, Any]:
    try:
        whole = json_value(read_text(path))
    except (OSError, ValueError) as fault:
        cause = getattr(fault, "strerror", None) or fault
        raise Mistake(f"--config {path}: expected a JSON file, got {cause}") from fault
    section = whole.get(SECTION, whole) if isinstance(whole, dict) else whole
    if not isinstance(section, dict):
        raise Mistake(f"--config {path}: expected an object with {SECTION}, got {type(section).__name__}")
    if section and TYPES.keys().isdisjoint(section) and section is whole:
        raise Mistake(f"--config {path}: expected a section {SECTION}, got {', '.join(section)}")
    return section


def report(profile: StepProfile, options: Namespace, width: int | None = None, colour: bool = False) -> str:
    """Return the report as text, CSV or JSON. width: columns of the terminal; None: those of a file. colour: whether
    the text has colours."""
    from reports import profile as data

    if options.format == "json":
        return json_text(data.document(profile))
    if options.format == "csv":
        return csv_of(data.operation_rows(profile) if options.operations else data.module_rows(profile))
    return _text(profile, options, width, colour)


def _text(profile: StepProfile, options: Namespace, width: int | None = None, colour: bool = False) -> str:
    from reports.profile_tree import FILE_WIDTH, tree_text

    shown = {"depth": options.module_depth, "top": options.top_modules, "detailed": options.detailed}
    return tree_text(profile, **shown, operations=options.operations, width=width or FILE_WIDTH, colour=colour)


class Unprofiled(Exception):
    """The reason why there is no profile, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    """Do everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    options = merged(options)
    _check(options)
    rows = _read_ceilings(options)
    from runners.workers.pool import Worker, prepare

    for path in filter(None, (options.out and options.out / "profile.html", options.output_file)):
        reserve(path)
    prepare()
    worker = Worker("profile")
    try:
        probed = devices.probed_device(worker, options.device)
        if options.precision in probed.refused:
            raise Mistake(f"--precision: {probed.refused[options.precision]}")
        machine = _machine(worker, options, probed, rows)
        profile = _profile(worker, options, probed, machine)
    except Unprofiled as fault:
        show_transient("")
        say(f"error: {with_install_hint(str(fault))}")
        return FAILED
    finally:
        worker.stop()
    show_transient("")
    show(profile, options)
    return _conserved(profile)


def show(profile: StepProfile, options: Namespace) -> None:
    """Print the report on stdout or into its file, and write everything else to --out. Raises StoreFault."""
    from reports import profile as data
    from reports.profile_tree import profile_page

    if options.output_file is None:
        show_page(lambda width, colour: report(profile, options, width if sys.stdout.isatty() else None, colour))
    else:
        write_file(options.output_file, report(profile, options))
        say(f"written to {options.output_file}")
    if options.out is not None:
        write_file(options.out / "profile.json", json_text(data.document(profile)))
        write_file(options.out / "modules.csv", csv_of(data.module_rows(profile)))
        write_file(options.out / "operations.csv", csv_of(data.operation_rows(profile)))
        write_file(options.out / "profile.txt", _text(profile, options))
        write_file(options.out / "profile.html", profile_page(profile))
        say(f"written to {options.out}")


def _conserved(profile: StepProfile) -> int:
    """Return 0; or 1, with a line, where the parts are not the whole, which must never happen."""
    from analysis.module_tree import tree
    from reports.profile import conservation

    sums = conservation(profile, tree(profile)[""])
    if all(sums.values()):
        return 0
    say(f"error: the parts are not the step: {'; '.join(sums)}")
    return FAILED


def _check(options: Namespace) -> None:
    """Raise Mistake for impossible options, before anything slow is imported."""
    devices.check_name(options.device)
    if options.output_file is not None and options.output_file.is_dir():
        raise Mistake(f"--output-file: expected a file, got the directory {options.output_file}; --out takes one")
    together = options.model_parallel
    if (options.world_size or together) % together:
        raise Mistake(f"--world-size: expected a multiple of --model-parallel {together}, got {options.world_size}")
    check_models([options.model], options)


def _read_ceilings(options: Namespace) -> list[Ceiling] | None:
    """Return the rows of --ceilings; None where no file is given."""
    if options.ceilings is None:
        return None
    from runners.ceiling import read_ceilings

    with as_mistake(ValueError, about="--ceilings: "):
        return read_ceilings(options.ceilings)


def _machine(worker: Any, options: Namespace, probed: devices.ProbeResult, rows: list[Ceiling] | None) -> Machine:
    """Return the limits with which the step is compared. A missing ceiling gets a line, and costs only its own
    figures."""
    from analysis.roofline import machine_of

    facts = probed.properties
    if rows is None and options.ceiling_budget:
        show_transient("looking for the machine's ceilings")
        budget_s = options.ceiling_budget
        answer = worker.call(
            "measure.ceiling.machine:measure_machine", probed.device, (options.precision,), budget_s,
            timeout_s=10 * budget_s + devices.PROBE_TIMEOUT_S,
        )  # fmt: skip
        if isinstance(answer, WorkerFault):
            show_transient("")
            say(f"warning: no ceilings: {answer.reason}")
        rows = [] if isinstance(answer, WorkerFault) else answer
    threads = facts.get("threads") if probed.device.startswith("cpu") else None
    return machine_of(
        rows or [], probed.device, probed.name, facts.get("multiprocessors"), threads, facts.get("clock_hz")
    )


def _profile(worker: Any, options: Namespace, probed: devices.ProbeResult, machine: Machine) -> StepProfile:
    """Profile the model in the worker. Raises Mistake where the model cannot be built or fails, Unprofiled where the
    worker or the device fails."""
    show_transient(f"{options.model}: profiling")
    answer: StepProfile | WorkerFault = worker.call(
        "runners.workers.step_tasks:profile", options, probed.device, timeout_s=options.timeout
    )
    if isinstance(answer, WorkerFault):
        if answer.status in CALLER_MISTAKES:
            raise Mistake(f"{options.model}: {answer.reason.removeprefix(f'{options.model}: ')}")
        raise Unprofiled(f"{options.model}: {answer.status.replace('_', ' ')}: {answer.reason}")
    return replace(
        answer,
        machine=machine,
        world_size=options.world_size or options.model_parallel,
        model_parallel=options.model_parallel,
        recompute_fwd_factor=options.recompute_fwd_factor,
        notes=(*answer.notes, *devices.busy(probed.device, probed.environment)),
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
