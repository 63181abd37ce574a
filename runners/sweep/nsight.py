"""Records the passes of a cell with Nsight Systems, each in a process of its own, after the cell was measured.

`record` takes a cell and passes, and returns `PassFindings` with the exports. A worker runs the command of Nsight
Systems, so that the command ends at its limit, at Ctrl-C, or with the parent. An export is read once before it is kept.
A fault costs only one pass's recording: `PassFindings.unprofiled` has the reason under "nsys PASS". Nothing is timed.
Nsight Systems starts `python -m runners.sweep.nsight CELL PASS`. This command builds the cell's model as the sweep
does, warms up, and runs one step between cudaProfilerStart and cudaProfilerStop. On a failure it prints one line that
begins with "error: " and exits with 1. Without Nsight Systems it records nothing.
"""

import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from measure.profile import nsight
from results.errors import Unavailable
from results.records.cell import Cell, non_default
from results.store.layout import QUICK, compress
from runners.cli.exits import FAILED
from runners.cli.output import say
from runners.sweep.findings import PassFindings, PassRecording
from runners.sweep.plan import with_tuples
from runners.workers.pool import WorkerFault, classify

SOURCE = "nsys"
TASK = "runners.sweep.nsight:run_recording"
LIMIT_S = 300.0
"""Limit of one recording: importing torch, building, warming up, one step and the export."""

LOOK_EVERY_S = 0.5

PARENT = "FLOPLEDGER_PARENT"
"""Environment variable with the id of a process. The recorded step ends when that process ends, as nsys may put the
step into another session."""

GRACE_S = 15.0
"""Time after a recording's limit at which its worker is killed. Until then the worker can report the reason."""


def check(cells: Iterable[Cell], which: Callable[[str], str | None] = shutil.which) -> str:
    """Return a text with the recorder of cells that ask for one; "" if none does. Raises ValueError if there is no
    recorder."""
    asking = [cell for cell in cells if cell.profile == SOURCE]
    if not asking:
        return ""
    device = next((cell.device for cell in asking if not cell.device.startswith("cuda")), "")
    if device:
        raise ValueError(
            f"--profile {SOURCE}: expected a CUDA device, whose kernels Nsight Systems records, got {device}; "
            "--profile kineto records there"
        )
    try:
        path, version = nsight.find(which)
    except Unavailable as fault:
        raise ValueError(f"--profile {SOURCE}: {fault}, or take --profile kineto") from fault
    return f"recording with {version} ({path})"


def record(
    cell: Cell, passes: Sequence[str], worker: Any, tell: Callable[[str], None], left_s: Callable[[], float]
) -> PassFindings:
    """Return the recordings of a cell's passes. worker: a `pool.Worker`; left_s: of the cell's limit.

    Raises what a worker's call raises: KeyboardInterrupt, or OSError where there is no room for a process or a file.
    """
    findings = PassFindings()
    for pass_name in passes:
        limit_s = max(0.0, min(LIMIT_S, left_s()))
        with tempfile.TemporaryDirectory(prefix="nsys-", ignore_cleanup_errors=True) as folder:
            command_line = command(cell, pass_name, Path(folder))
            tell(shlex.join(command_line))
            try:
                answer = worker.call(TASK, command_line, folder, limit_s, timeout_s=limit_s + GRACE_S)
            finally:
                nsight.end_marked(Path(folder))
        if isinstance(answer, WorkerFault):
            findings.unprofiled[f"{SOURCE} {pass_name}"] = answer.reason
        else:
            findings.recordings[pass_name] = PassRecording(answer, shlex.join(command_line))
    return findings


def command(cell: Cell, pass_name: str, folder: Path) -> list[str]:
    """Return the command that records one pass of a cell."""
    parameters = json.dumps(non_default(cell), sort_keys=True)
    step = [sys.executable, "-m", "runners.sweep.nsight", parameters, pass_name]
    return nsight.command(shutil.which(nsight.NSYS) or nsight.NSYS, folder, step)


def run_recording(command_line: Sequence[str], folder: str, limit_s: float) -> bytes:
    """Run a recording's command, as a worker's task; return its export, gzipped. Raises Unavailable, or ValueError for
    an export that cannot be read, or whose step launched no kernel."""
    from measure.trace.attribute import last_step
    from runners.cli.model_options import read_recording

    root = str(Path(__file__).resolve().parents[__name__.count(".")])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    environ = {"PYTHONPATH": path, PARENT: str(os.getpid())}
    export = nsight.record(command_line, Path(folder), limit_s, environ)
    try:
        recording = read_recording(export, last_step)
    except ValueError as fault:
        raise ValueError(f"its export: {str(fault).removeprefix(f'{export}: ')}") from fault
    if "kernel" not in set(recording.kernels["what"]):
        raise ValueError("its export: no kernel was recorded in the step")
    return compress(export.read_bytes(), QUICK)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the step ran; 1 if it did not, with the reason as one line on stderr. arguments: a cell's non-default
    parameters as JSON, and one of its passes."""
    text, pass_name = sys.argv[1:] if arguments is None else arguments
    if PARENT in os.environ:
        threading.Thread(target=_end_without, args=(int(os.environ[PARENT]),), daemon=True).start()
    try:
        run(Cell(**with_tuples(json.loads(text))), pass_name)
    except Exception as fault:  # noqa: BLE001  the edge: whatever a step raises is written to the log
        say(f"error: {classify(fault).reason}")
        return FAILED
    return 0


def run(cell: Cell, pass_name: str) -> None:
    """Build the cell's model, and run one step of the pass to be recorded."""
    from measure.profile.recording import record_step
    from measure.timing.stopping import Protocol
    from runners.sweep import cell as sweep_cell
    from runners.sweep import passes

    prepared = sweep_cell.prepare(cell)
    rules = Protocol.for_device(cell.device)
    subject = passes.MeasuredCell(
        cell, prepared.model, prepared.step, prepared.batches, prepared.clock, rules, 0.0, prepared.began_s
    )
    step = passes.steps(subject, pass_name)(prepared.model)
    record_step(step, prepared.model, prepared.clock, pass_name=pass_name, cuda=cell.device.startswith("cuda"))


def _end_without(parent: int) -> None:
    """End this process when another one is gone."""
    while True:
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            os._exit(FAILED)
        except PermissionError:  # it lives, and belongs to somebody else
            pass
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
