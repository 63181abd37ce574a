"""`python -m runners.profile MODEL`: where time, FLOP, bytes and parameters go, and what bounds each part.

A worker looks for the machine's ceilings, builds the model, and profiles steps of it; the parent imports no torch.
Exit codes: 0 profiled; 1 it could not be, or its sums do not add up; 2 the caller's mistake, a model that does not
take its inputs among them; 3 a file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.cli.arguments import names, number
from runners.cli.exits import FAILED, Mistake, as_mistake, guarded, instructed
from runners.cli.model_options import MODEL, MODEL_INPUT, Options, check_models, hyper_of, parser_of
from runners.cli.output import json_text, put, reserve, say, show_page
from runners.cli.progress import passing
from runners.profile import task
from runners.profile.task import DEFAULTS
from runners.workers import devices
from runners.workers.pool import WorkerFault

if TYPE_CHECKING:
    from results.records.answers import Machine, StepProfile
    from results.records.cell import Ceiling
    from runners.workers.devices import ProbeResult


MODES = ("train", "forward", "generate")

TIMEOUT_S = 1800.0
COMPARED = 4
CEILING_S = 20.0

EPILOG = (
    "Models of any form, and their inputs: docs/models.md. The report and its rules: docs/profile.md. --config takes "
    "a DeepSpeed configuration with flops_profiler; the command line comes first."
)


OPTIONS: Mapping[str, Options] = {
    "": {"model": {"metavar": "MODEL", "help": MODEL}},
    "the model and its batch": {**MODEL_INPUT, "layout": {}},
    "what is run": {
        "device": {},
        "precision": {},
        "--mode": {"choices": MODES, "default": "train", "help": "train, forward (in eval mode) or generate"},
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
            "help": f"seconds to measure ceilings where no file is given; 0: the datasheet alone ({CEILING_S:g})",
        },
        "timeout": {"default": TIMEOUT_S, "help": f"of the profile ({TIMEOUT_S:g})"},
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
        "--detailed": {"action": argparse.BooleanOptionalAction, "help": "the tree of modules (yes)"},
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
"""What a file may say, too, is None where the command line does not say it."""

DESCRIPTION = "Where inside the model do time, FLOPs, bytes and parameters go, and what bounds each part?"

parser = partial(parser_of, "profile", DESCRIPTION, OPTIONS, EPILOG)


PAGE = "profile.html"


def make(options: Namespace) -> None:
    """The directories of --out and --output-file, before anything is measured for them. Raises StoreFault."""
    for path in filter(None, (options.out and options.out / PAGE, options.output_file)):
        reserve(path)


def report(profile: StepProfile, options: Namespace, width: int | None = None, colour: bool = False) -> str:
    """The report as text, CSV or JSON. width: of the terminal that it is for, colour: if it has any; None: none."""
    from reports.profile import data as profile_data

    if options.format == "json":
        return json_text(profile_data.document(profile))
    if options.format == "csv":
        made = profile_data.operations_csv if options.operations else profile_data.modules_csv
        return made(profile)
    return text_of(profile, options, width, colour)


def text_of(profile: StepProfile, options: Namespace, width: int | None = None, colour: bool = False) -> str:
    """The report as text."""
    from reports.profile.tree import FILE_WIDTH, tree_text

    shown = {"depth": options.module_depth, "top": options.top_modules, "detailed": options.detailed}
    return tree_text(profile, **shown, operations=options.operations, width=width or FILE_WIDTH, colour=colour)


def write(profile: StepProfile, options: Namespace) -> None:
    """Every file of --out. Raises StoreFault."""
    from reports.profile import data as profile_data
    from reports.profile import page as profile_page

    out = options.out
    put(out / "profile.json", json_text(profile_data.document(profile)))
    put(out / "modules.csv", profile_data.modules_csv(profile))
    put(out / "operations.csv", profile_data.operations_csv(profile))
    put(out / "profile.txt", text_of(profile, options))
    put(out / PAGE, profile_page.page(profile))


OTHERS = "times hold others' work, too"

ASKED_WRONGLY = ("invalid", "unavailable")
"""Statuses of a worker's fault that are the caller's mistake."""


class Unprofiled(Exception):
    """Why there is no profile, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    """Everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    options = task.merged(options)
    _check(options)
    rows = _read(options)
    from runners.workers.pool import Worker, prepare

    make(options)
    prepare()
    worker = Worker("profile")
    try:
        probed = _probe(worker, options)
        machine = _machine(worker, options, probed, rows)
        profile = _profile(worker, options, probed, machine)
    except Unprofiled as fault:
        passing("")
        say(f"error: {instructed(str(fault))}")
        return FAILED
    finally:
        worker.stop()
    passing("")
    show(profile, options)
    return _conserved(profile)


def show(profile: StepProfile, options: Namespace) -> None:
    """The report on stdout or into its file, and everything else where --out says. Raises StoreFault."""
    from runners.cli import output

    if options.output_file is None:
        show_page(lambda width, colour: report(profile, options, width if sys.stdout.isatty() else None, colour))
    else:
        output.put(options.output_file, report(profile, options))
        say(f"written to {options.output_file}")
    if options.out is not None:
        write(profile, options)
        say(f"written to {options.out}")


def _conserved(profile: StepProfile) -> int:
    """0; 1 with a line where the parts are not the whole, which no profile should show."""
    from analysis.profile.module_tree import conservation, tree
    from reports.profile.data import conservation_lines

    nodes = tree(profile)
    if conservation(profile, nodes).holds:
        return 0
    say(f"error: the parts are not the step: {'; '.join(conservation_lines(profile, nodes['']))}")
    return FAILED


def _check(options: Namespace) -> None:
    """Raises Mistake for what cannot be, before anything slow is imported."""
    devices.check_name(options.device)
    if options.output_file is not None and options.output_file.is_dir():
        raise Mistake(f"--output-file: expected a file, got the directory {options.output_file}; --out takes one")
    together = options.model_parallel
    if (options.world_size or together) % together:
        raise Mistake(f"--world-size: expected a multiple of --model-parallel {together}, got {options.world_size}")
    check_models([options.model], options)


def _read(options: Namespace) -> list[Ceiling] | None:
    """The rows of --ceilings; None where no file is given."""
    if options.ceilings is None:
        return None
    from runners.ceiling.command import read_ceilings

    with as_mistake(ValueError, about="--ceilings: "):
        return read_ceilings(options.ceilings)


def _probe(worker: Any, options: Namespace) -> ProbeResult:
    """What the device is. Raises Mistake for one that is not there, or that lacks the precision."""
    found = devices.probed_device(worker, options.device)
    if options.precision in found.refused:
        raise Mistake(f"--precision: {found.refused[options.precision]}")
    return found


def _machine(worker: Any, options: Namespace, probed: ProbeResult, rows: list[Ceiling] | None) -> Machine:
    """The limits that the step is compared with. A ceiling that is missing is said, and costs only its own figures."""
    from analysis.profile.roofline import machine_of

    facts = probed.properties
    if rows is None and options.ceiling_budget:
        passing("looking for the machine's ceilings")
        budget_s = options.ceiling_budget
        answer = worker.call(
            "runners.ceiling.search:quick", probed.device, (options.precision,), budget_s,
            timeout_s=10 * budget_s + devices.PROBE_TIMEOUT_S,
        )  # fmt: skip
        if isinstance(answer, WorkerFault):
            passing("")
            say(f"warning: no ceilings: {answer.reason}")
        rows = [] if isinstance(answer, WorkerFault) else answer
    threads = facts.get("threads") if probed.device.startswith("cpu") else None
    return machine_of(
        rows or [], probed.device, probed.name, facts.get("multiprocessors"), threads, facts.get("clock_hz")
    )


def _profile(worker: Any, options: Namespace, probed: ProbeResult, machine: Machine) -> StepProfile:
    """Raises Mistake where the model cannot be built or fails, Unprofiled where the worker does."""
    from runners.profile.task import ProfileRequest

    passing(f"{options.model}: profiling")
    request = ProfileRequest(
        model=options.model,
        batch_size=options.batch_size,
        device=probed.device,
        precision=options.precision,
        mode=options.mode,
        optimizer=options.optimizer,
        layout=options.layout,
        steps=options.steps,
        warm_up=options.warm_up,
        compare_steps=options.compare_steps,
        ignored=options.ignore_modules,
        hyper=hyper_of(options),
    )
    answer: StepProfile | WorkerFault = worker.call("runners.profile.task:profile", request, timeout_s=options.timeout)
    if isinstance(answer, WorkerFault):
        if answer.status in ASKED_WRONGLY:
            raise Mistake(f"{options.model}: {answer.reason.removeprefix(f'{options.model}: ')}")
        raise Unprofiled(f"{options.model}: {answer.status.replace('_', ' ')}: {answer.reason}")
    notes = (*answer.notes, *devices.busy(probed.device, probed.environment, OTHERS))
    return replace(
        answer,
        machine=machine,
        world_size=options.world_size or options.model_parallel,
        model_parallel=options.model_parallel,
        recompute_fwd_factor=options.recompute_fwd_factor,
        notes=notes,
    )
