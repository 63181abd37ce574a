"""Runs a command under Nsight Systems: finds nsys, builds its command line, and returns the path of the export.

`nsys profile` starts the command, records between its cudaProfilerStart and cudaProfilerStop, and exports to SQLite. If
nsys fails, exceeds its time limit or leaves no export, Unavailable is raised with the end of the output in one line.
All files of nsys go to one folder, temporary files included. All processes that nsys started have a variable (MARK) in
their environment, by which they are ended with nsys. This module imports no torch.

Not claimed: that the export can be read (`measure.trace.nsys` checks that); that these options work in nsys before
2021.4.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from measure.device.processes import end_of, output_tail
from results.errors import Unavailable

NSYS = "nsys"

MARK = "FLOPLEDGER_NSYS"
"""Environment variable of all processes that a recording starts; its value is the recording's folder."""

FAULT = "error: "
"""Beginning of the line in which a recorded command reports why it failed."""

OPTIONS = (
    "--trace=cuda,nvtx",
    "--sample=none",  # of the processor, which may need permissions
    "--cpuctxsw=none",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",  # and the command goes on to its end
    "--force-overwrite=true",
    "--export=sqlite",
)

_PROGRESS = re.compile(r"\[[\d/]+\] \[[^\]]*\]?\s*[^\s%]*%?")
"""nsys's progress bars, which a log holds one after the other."""


def find(which: Callable[[str], str | None] = shutil.which) -> tuple[str, str]:
    """Return the path and the version of Nsight Systems. Raises Unavailable if it is not installed, with the package to
    install, or does not run."""
    path = which(NSYS)
    if path is None:
        install = "install NVIDIA Nsight Systems (package nsight-systems-cli of NVIDIA's CUDA repository)"
        raise Unavailable(f"expected the command {NSYS} on PATH, found none: {install}")
    try:
        answer = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60.0
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise Unavailable(f"expected {path} --version to answer: {' '.join(str(fault).split())}") from fault
    version = " ".join(answer.stdout.split())
    if answer.returncode or not version:
        printed = output_tail(answer.stdout + answer.stderr)
        raise Unavailable(f"expected {path} --version to answer, it ended with status {answer.returncode}{printed}")
    return path, version


def command(nsys: str, folder: Path, target: Sequence[str]) -> list[str]:
    """Return the command that records `target`: its export is `folder`/report.sqlite."""
    return [nsys, "profile", *OPTIONS, f"--output={folder / 'report'}", *target]


def record(command_line: Sequence[str], folder: Path, limit_s: float, environ: dict[str, str] | None = None) -> Path:
    """Run a `command`, end all processes that it started, and return the path of its export. Raises Unavailable.

    limit_s: seconds after which it is killed. environ: variables in addition to those of this process.
    """
    log = folder / "nsys.log"
    variables = {**os.environ, **(environ or {}), "TMPDIR": str(folder), MARK: str(folder)}
    try:
        with open(log, "wb") as out:
            process = subprocess.Popen(command_line, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=variables)
    except OSError as fault:
        raise Unavailable(f"{command_line[0]} could not be started: {fault.strerror or fault}") from fault
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired as fault:
        raise Unavailable(f"nsys was killed at its limit of {limit_s:g} s{_failure_text(log)}") from fault
    finally:
        process.kill()
        end_marked(folder)
        process.wait(10.0)
    if code:
        how = f"nsys ended with status {code}" if code > 0 else end_of("nsys", code)
        raise Unavailable(f"{how}{_failure_text(log)}")
    export = folder / "report.sqlite"
    if not export.is_file():
        raise Unavailable(f"nsys ended, and left no export (report.sqlite){_failure_text(log)}")
    return export


def end_marked(folder: Path) -> None:
    """End all processes with the mark of a recording, whatever their session or parent. Linux only."""
    mark = f"{MARK}={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process ended meanwhile, or belongs to another user
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def _failure_text(log: Path) -> str:
    """Return the command's own reason for failing, or else the end of its output."""
    text = _PROGRESS.sub("", log.read_text(errors="replace")).replace(f"{log.parent}/", "")
    faults = [line for line in text.splitlines() if line.startswith(FAULT)]
    return f": {faults[-1].removeprefix(FAULT)}" if faults else output_tail(text)
