"""`python -m runners.profile MODEL`: where time, FLOP, bytes and parameters go, and what bounds each part.

A worker looks for the machine's ceilings, builds the model, and profiles steps of it; the parent imports no torch.
Exit codes: 0 profiled; 1 it could not be, or its sums do not add up; 2 the caller's mistake, a model that does not
take its inputs among them; 3 a file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runners.cli.exits import FAILED, Mistake, guarded, instructed
from runners.cli.model_options import check_models, hyper_of
from runners.cli.output import say, show_page
from runners.cli.progress import passing
from runners.profile import deepspeed_config
from runners.profile import options as profile_options
from runners.workers import devices

if TYPE_CHECKING:
    from results.records.samples import Ceiling
    from results.records.step_profile import Machine, StepProfile
    from runners.workers.devices import ProbeResult

OTHERS = "times hold others' work, too"

ASKED_WRONGLY = ("invalid", "unavailable")
"""Statuses of a worker's fault that are the caller's mistake."""


class Unprofiled(Exception):
    """Why there is no profile, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = profile_options.parser().parse_args(arguments)
    return guarded(lambda: _run(options), options.debug)


def _run(options: Namespace) -> int:
    """Everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    options = deepspeed_config.merged(options)
    _check(options)
    rows = _read(options)
    from runners.profile import output as profile_output
    from runners.workers.pool import Worker, prepare

    profile_output.make(options)
    prepare()
    worker = Worker("profile", quiet=not options.debug)
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
    from runners.profile import output as profile_output

    if options.output_file is None:
        show_page(
            lambda width, colour: profile_output.report(
                profile, options, width if sys.stdout.isatty() else None, colour
            )
        )
    else:
        output.put(options.output_file, profile_output.report(profile, options))
        say(f"written to {options.output_file}")
    if options.out is not None:
        profile_output.write(profile, options)
        say(f"written to {options.out}")


def _conserved(profile: StepProfile) -> int:
    """0; 1 with a line where the parts are not the whole, which no profile should show."""
    from analysis.profile.module_tree import conservation, tree
    from reports.profile.summary import conservation_lines

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
    from runners.ceiling import output as ceiling_output

    try:
        return ceiling_output.read(options.ceilings)
    except ValueError as fault:
        raise Mistake(f"--ceilings: {fault}") from fault


def _probe(worker: Any, options: Namespace) -> ProbeResult:
    """What the device is. Raises Mistake for one that is not there, or that lacks the precision."""
    found = devices.probed_device(worker, options.device)
    if options.precision in found.refused:
        raise Mistake(f"--precision: {found.refused[options.precision]}")
    return found


def _machine(worker: Any, options: Namespace, probed: ProbeResult, rows: list[Ceiling] | None) -> Machine:
    """The limits that the step is compared with. A ceiling that is missing is said, and costs only its own figures."""
    from analysis.profile.machine import machine_of
    from runners.workers.worker import WorkerFault

    facts = probed.properties
    if rows is None and options.ceiling_budget:
        passing("looking for the machine's ceilings")
        budget_s = options.ceiling_budget
        answer = worker.call(
            "runners.ceiling.tasks:quick", probed.device, (options.precision,), budget_s,
            timeout_s=10 * budget_s + devices.PROBE_TIMEOUT_S,
        )  # fmt: skip
        if isinstance(answer, WorkerFault):
            passing("")
            say(f"warning: no ceilings: {answer.reason}")
        rows = [] if isinstance(answer, WorkerFault) else answer
    threads = facts.threads if probed.device.startswith("cpu") else None
    return machine_of(rows or [], probed.device, probed.name, facts.multiprocessors, threads, facts.clock_hz)


def _profile(worker: Any, options: Namespace, probed: ProbeResult, machine: Machine) -> StepProfile:
    """Raises Mistake where the model cannot be built or fails, Unprofiled where the worker does."""
    from runners.profile.task import ProfileRequest
    from runners.workers.worker import WorkerFault

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
        if options.debug:
            print(answer.detail, file=sys.stderr)
        if answer.status in ASKED_WRONGLY:
            raise Mistake(f"{options.model}: {answer.reason.removeprefix(f'{options.model}: ')}")
        raise Unprofiled(f"{options.model}: {answer.status.replace('_', ' ')}: {answer.reason}")
    notes = (*answer.notes, *devices.busy(probed.device, probed.environment.host, OTHERS))
    return replace(
        answer,
        machine=machine,
        world_size=options.world_size or options.model_parallel,
        model_parallel=options.model_parallel,
        recompute_fwd_factor=options.recompute_fwd_factor,
        notes=notes,
    )
