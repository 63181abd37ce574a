"""`python -m runners.sweep`: what utilization does training reach here, over models × batch sizes × precisions?

The command parses its options (`options.py`), asks a worker for the device's facts, and plans the cells. A cell is one
combination of workload, batch size and precision. The cells are measured into a run directory, which a later session
can continue. The parent process imports no torch, except under torchrun, whose key-value store it uses. Exit codes: 0
all cells measured, 1 some cells failed, 2 the caller's mistake, 3 the store could not be written, 130 Ctrl-C, 143
SIGTERM.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.errors import StoreFault
from results.records.cell import MEASURED
from results.store.manifest import Manifest, harness_version, utc_now
from results.store.store import FAILED as FAILED_CELL
from results.store.store import NOT_CONVERGED, Store, check_vacant
from runners.cli.exits import FAILED, INTERRUPTED, TERMINATED, UNWRITABLE, Terminated, exit_code
from runners.cli.output import Progress, say, show_transient
from runners.sweep.batches_that_fit import plan_lines, with_batches
from runners.sweep.options import LOCAL, RETRIED, RUNS, parser
from runners.sweep.plan import Grid, cell_of, check, check_images, check_unchanged, least_s
from runners.sweep.request import (
    EARLIER,
    as_options,
    check_executor,
    check_options,
    chosen,
    grids_of,
    resumed_run,
    stored_options,
    union,
)
from runners.workers.any_model import hyper_of_cell, is_own
from runners.workers.devices import ProbeResult, adopt_threads, peak_row, rank_process, thread_settings
from runners.workers.pool import WorkerDied, ask_once, prepare

if TYPE_CHECKING:
    from runners.sweep.executors import Executor

LACKING = "their rows say why; --resume --retry failed measures those cells again"
"""Shown for cells whose own step was measured but not a requested pass, such as the exact count. They are not failed:
the exit code stays 0."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    argv, process = list(sys.argv[1:] if arguments is None else arguments), rank_process(os.environ)
    if process is not None and process.rank:
        from runners.sweep.rank_peers import follow

        return 0 if {"-h", "--help"} & set(argv) else follow(process)  # wrong options end the first rank, and so all
    options_parser = parser()
    options = options_parser.parse_args(argv)
    options.begun = False  # later the run directory that --resume can continue
    command = shlex.join([*shlex.split("python -m runners.sweep"), *argv])  # whole: the wheel has another name for it
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return _sweep(options, command)
    except ValueError as fault:
        options_parser.fail(str(fault))
    except WorkerDied as fault:
        print(f"error: {fault}; nothing was measured", file=sys.stderr)
        return FAILED
    except StoreFault as fault:
        say(f"error: {fault}")
        return UNWRITABLE
    except BrokenPipeError:
        raise
    except OSError as fault:  # no room for a temporary file, a pipe, a process or the answer
        say(f"error: {fault}; {_resume_hint(options)}")
        return UNWRITABLE
    except KeyboardInterrupt as end:
        say(f"stopped; {_resume_hint(options)}")
        return TERMINATED if isinstance(end, Terminated) else INTERRUPTED


def _terminated(_signal: int, _frame: object) -> None:
    raise Terminated


def _resume_hint(options: argparse.Namespace) -> str:
    """Say how to go on with a sweep that ended early."""
    if not options.begun:
        return "nothing was measured"
    return f"what was measured is kept; next: python -m runners.sweep --resume {options.begun}"


def _sweep(options: argparse.Namespace, command: str) -> int:
    """Do everything after parsing. Raises ValueError for a mistake, StoreFault, OSError, KeyboardInterrupt."""
    resumed = resumed_run(options)
    options.begun = resumed
    stored = stored_options(resumed)
    process = rank_process(os.environ)
    if process is not None and process.world > 1 and not chosen(options, stored, "parallel", ()):
        options.parallel = [f"ddp={process.world}"]
        say(f"no --parallel: {options.parallel[0]}, over all ranks of torchrun")
    check_options(options, stored)
    check_executor(options)
    if resumed is None and options.out is not None:
        check_vacant(options.out)
    adopt_threads(stored.get("threads"), stored.get("wait_policy", ""))
    prepare()  # starts importing torch while the rest is checked
    executor = _executor(options, stored)
    try:
        return _sweep_on(executor, options, stored, resumed, command)
    finally:
        executor.close()


def _executor(options: argparse.Namespace, stored: dict[str, Any]) -> Executor:
    """Choose the executor of the cells. Raises ValueError where a cluster has no device for them."""
    from runners.sweep.executors import Executor, LocalSlots
    from runners.sweep.findings import SlotSettings
    from runners.sweep.session import Session

    process, device = rank_process(os.environ), str(chosen(options, stored, "device", "auto"))
    settings = SlotSettings(device, options.cell_timeout, harness_version(), os.environ.get("OMP_NUM_THREADS", ""))
    if process is not None and chosen(options, stored, "parallel", ()):
        from runners.sweep.rank_rows import RankSession

        return Executor(LocalSlots(RankSession(settings, process)))
    if options.executor == LOCAL:
        return Executor(LocalSlots(Session(settings)))
    from runners.sweep.ray_slots import RaySlots

    return Executor(RaySlots(settings, options.accelerator or ""))


def _sweep_on(
    executor: Executor, options: argparse.Namespace, stored: dict[str, Any], resumed: Path | None, command: str
) -> int:
    """Plan, measure and report; return the exit code. Raises what `_sweep` does."""
    probed = executor.probe()
    grids = [_checked(grid, probed) for grid in grids_of(options, stored, probed)]
    model, precision = grids[0].models[0], grids[0].precisions[0]
    first = cell_of(grids[0], model, grids[0].batches_of(model, precision)[0], precision)
    is_here = options.executor == LOCAL and rank_process(os.environ) is None
    if resumed is None and is_here and (threads := thread_settings(first, probed)):
        probed = executor.probe()  # whose environment is that of the session
        grids = [dataclasses.replace(grid, **threads) for grid in grids]
    earlier = _earlier(grids, stored)
    check_unchanged(grids[0], earlier)
    planned = union(grids[0], earlier)
    if options.time_budget is not None and options.time_budget < (least := least_s(planned[0])):
        got = f"one cell's least, got {options.time_budget:g}"
        raise ValueError(f"--time-budget: expected at least {least:.3g} s, {got}")
    from runners.sweep import nsight

    recorder = nsight.check(planned) if resumed is None else ""  # before a directory is made
    opened = _store(options, resumed, as_options(grids[0], earlier), probed, command)
    with opened as store:
        options.begun = opened.path
        done = store.done(*(kind in options.retry for kind in RETRIED))
        todo = [cell for cell in planned if cell.cell_id not in done]
        if len(todo) < len(planned):
            say(f"{len(planned) - len(todo)} of {len(planned)} cells are measured already")
        if recorder := recorder or nsight.check(todo):
            say(recorder)
        begun = executor.begin_session(store, harness_version()) if todo else None
        if resumed is not None:  # not before the machine was found to be one that may go on
            commands, now = (*store.manifest.commands, command), as_options(grids[0], earlier)
            store.replace_manifest(dataclasses.replace(store.manifest, commands=commands, options=now))
        if begun is not None:
            with Progress(len(todo)) as progress:
                for line in _cautions(probed, begun):
                    progress.say(line)
                list(executor.rows(store, todo, options.time_budget, progress, _notes(probed)))
        path, statuses, lacking = store.path, store.done(), store.incomplete_cells
    if count := sum(cell.cell_id in lacking for cell in planned):
        say(f"{count} of {len(planned)} cells lack a requested pass: {LACKING}")
    _report(path, options.format, options.convention)
    is_failed = any(statuses.get(cell.cell_id, "ok") not in MEASURED for cell in planned)
    return FAILED if executor.unmeasured or is_failed else 0


def _checked(grid: Grid, probed: ProbeResult) -> Grid:
    """Return the grid with its batch sizes, after checking that it can be measured. Raises ValueError, one line, for a
    model of a library or of the user that cannot be built, and for images that are unreadable or too few."""
    for model in grid.models:
        cell = cell_of(grid, model, 1, "fp32")
        if not is_own(cell):
            show_transient(f"{model}: building it once")
            ask_once("runners.workers.any_model:buildable", model, hyper_of_cell(cell))
            show_transient("")
    if grid.auto:
        grid = with_batches(grid, probed)
        for line in plan_lines(grid.auto):
            say(line)
    check(grid)
    if grid.data != "synthetic":
        check_images(grid, ask_once("runners.workers.any_model:images", grid.data))
    return grid


def _earlier(grids: Sequence[Grid], stored: dict[str, Any]) -> list[Grid]:
    """Return the grids to be measured after the first one: the others asked for, then those of earlier sessions."""
    before = [*map(Grid.from_json, stored.get(EARLIER, [])), *([Grid.from_json(stored)] if stored else [])]
    return [*grids[1:], *(grid for grid in before if grid not in grids)]


def _cautions(probed: ProbeResult, no_telemetry: str) -> list[str]:
    """Return warnings to print before the first cell is measured."""
    from measure.device.environment import host_state

    lines, host = [], host_state()
    load, processors = host["load_1min"], host["cpu_usable"]
    if load is not None and processors and load > processors:
        lines.append(
            f"a load of {load:.1f} on {processors} processors: other programs slow down and scatter what is measured; "
            "stop with Ctrl-C and end them, or expect wide intervals"
        )
    if probed.device == "cpu":
        lines.append("measuring on the CPU: there is no datasheet peak, the ceiling found here is the denominator")
    if no_telemetry:
        lines.append(no_telemetry)
    return lines


def _store(
    options: argparse.Namespace, resumed: Path | None, stored: dict[str, Any], probed: ProbeResult, command: str
) -> Store:
    """Create the run directory, or resume it. stored: options for a new run's manifest. Raises ValueError if neither is
    possible."""
    if resumed is not None:
        return Store.resume(resumed)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    path = options.out or RUNS / f"{stamp}-{probed.device.replace(':', '')}"
    manifest = Manifest(
        name=path.name,
        created_at=utc_now(),
        commands=(command,),
        harness_version=harness_version(),
        options=stored,
        peak_row=peak_row(probed),
        notes=_notes(probed),
    )
    return Store.create(path, manifest)


def _notes(probed: ProbeResult) -> tuple[str, ...]:
    """Return notes without which the run's numbers would mislead."""
    from analysis.devices.peaks import stand_in_warning

    return (stand_in_warning(probed.name),) if probed.properties.get("stand_in") else ()


def _report(path: Path, form: str, convention: str | None) -> None:
    """Derive everything from what is committed, and print it. convention: None: the table's own. Raises StoreFault."""
    from runners.rebuild import PAGE, rebuild
    from runners.report import show

    built = rebuild(path)
    show(built, form, path, **({} if convention is None else {"convention": convention}))
    statuses = {view.run.status for view in built.views}
    kinds = {"failed": {*FAILED_CELL}, "unconverged": {NOT_CONVERGED}}
    if retried := [kind for kind, of_kind in kinds.items() if statuses & of_kind]:
        say(f"next: python -m runners.sweep --resume {path} --retry {','.join(retried)}")
    else:
        say(f"next: open {path / PAGE}, or compare two runs: python -m runners.report {path} OTHER")


if __name__ == "__main__":
    sys.exit(exit_code(main))
