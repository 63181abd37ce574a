"""Nsight Systems around a command: is it there, what is called, and the export that comes of it.

`nsys profile` starts the command, records between its cudaProfilerStart and cudaProfilerStop, and exports to SQLite.
Whatever goes wrong (its exit code, its time, a report that is not there) is Unavailable, one line with its last words.
All of its files go to one folder, that of temporary files included; all that it started bears a mark in its environment
and is ended with it. No torch is imported here.

Not claimed: that what was exported can be read, which `measure.trace.readers.nsys` says; that options older than 2021.4
work.

A Kineto annotation around each module's forward, with the module's path, while a profiler listens.

torch's own module events carry a number a class ("nn.Module: Conv2d_3"), no path, and cost a Python stack each; these
carry the path ("flopledger.module.features.0"), one hook before and one after each forward. The root has none.

Not claimed: a module whose forward is called by name (`module.forward(x)`) runs no hooks, so that its calls belong to
the module around it. A compiled model runs no hooks of its parts: it gets no ranges at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from measure.device.processes import end_of, last_words
from measure.model.module_paths import ModulePaths
from measure.timing.profiler_ranges import DOMAIN
from results.errors import Unavailable

NSYS = "nsys"
INSTALL = "install NVIDIA Nsight Systems (package nsight-systems-cli of NVIDIA's CUDA repository)"
VERSION_TIMEOUT_S = 60.0
REAP_S = 10.0

MARK = "FLOPLEDGER_NSYS"
"""Variable of all that a recording starts: the recording's folder."""

FAULT = "error: "
"""How the line begins in which a command that is recorded says why it failed."""

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
"""nsys's bars, of which a log holds one after the other."""


def find(which: Callable[[str], str | None] = shutil.which) -> tuple[str, str]:
    """The path and the version of Nsight Systems. Raises Unavailable, which says what to install, or what is wrong."""
    path = which(NSYS)
    if path is None:
        raise Unavailable(f"expected its command {NSYS} on PATH, found none: {INSTALL}")
    try:
        answer = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise Unavailable(f"expected {path} --version to answer: {' '.join(str(fault).split())}") from fault
    version = " ".join(answer.stdout.split())
    if answer.returncode or not version:
        words = last_words(answer.stdout + answer.stderr)
        raise Unavailable(f"expected {path} --version to answer, it ended with status {answer.returncode}{words}")
    return path, version


def command(nsys: str, folder: Path, target: Sequence[str]) -> list[str]:
    """What is run to record `target`: its export is `folder`/report.sqlite."""
    return [nsys, "profile", *OPTIONS, f"--output={folder / 'report'}", *target]


def record(words: Sequence[str], folder: Path, limit_s: float, environ: dict[str, str] | None = None) -> Path:
    """Runs a `command`; the path of its export. Raises Unavailable. Nothing that it started is left.

    environ: variables for it, beside those of this process.
    """
    log = folder / "nsys.log"
    variables = {**os.environ, **(environ or {}), "TMPDIR": str(folder), MARK: str(folder)}
    try:
        with open(log, "wb") as out:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=variables)
    except OSError as fault:
        raise Unavailable(f"{words[0]} could not be started: {fault.strerror or fault}") from fault
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired as fault:
        raise Unavailable(f"nsys was killed at its limit of {limit_s:g} s{_failure_text(log)}") from fault
    finally:
        process.kill()
        end_marked(folder)
        process.wait(REAP_S)
    if code:
        how = f"nsys ended with status {code}" if code > 0 else end_of("nsys", code)
        raise Unavailable(f"{how}{_failure_text(log)}")
    export = folder / "report.sqlite"
    if not export.is_file():
        raise Unavailable(f"nsys ended, and left no export (report.sqlite){_failure_text(log)}")
    return export


def end_marked(folder: Path) -> None:
    """Ends what bears the mark of a recording, whichever session or parent it gave itself. Linux alone tells."""
    mark = f"{MARK}={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or belongs to somebody else
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def _failure_text(log: Path) -> str:
    """Why the command failed, as it says; else the end of what was printed."""
    text = _PROGRESS.sub("", log.read_text(errors="replace")).replace(f"{log.parent}/", "")
    faults = [line for line in text.splitlines() if line.startswith(FAULT)]
    return f": {faults[-1].removeprefix(FAULT)}" if faults else last_words(text)


MODULE = f"{DOMAIN}.module."
"""What the name of a module's annotation begins with; its path follows."""


class ModuleRanges(ModulePaths):
    """While this is entered, each forward of a submodule opens a range and closes it, also when it raises.

    A module with several names gets the one by which its caller names it, as in the tracer (`places.ModulePaths`).
    record: a factory of annotations; None: torch's. On leaving, all hooks are gone and no range is open.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        record: Callable[[str], contextlib.AbstractContextManager[Any]] | None = None,
    ) -> None:
        super().__init__(model)
        self.compiled = is_compiled(model)
        self._record = torch.profiler.record_function if record is None else record
        self._modules = [] if self.compiled else [module for path, module in model.named_modules() if path]
        self._open: list[contextlib.AbstractContextManager[Any]] = []

    def __enter__(self) -> ModuleRanges:
        for module in self._modules:
            self._handles += [
                module.register_forward_pre_hook(self._enter_module, prepend=True),
                module.register_forward_hook(self._leave_module, prepend=True, always_call=True),
            ]
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        while self._open:
            self._open.pop().__exit__(None, None, None)

    def _enter_module(self, module: torch.nn.Module, inputs: Any) -> None:
        super()._enter_module(module, inputs)
        annotation = self._record(MODULE + self.current)
        annotation.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(annotation)

    def _leave_module(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        super()._leave_module(module, inputs, output)
        self._open.pop().__exit__(None, None, None)


def is_compiled(model: torch.nn.Module) -> bool:
    """Whether torch.compile has had this model, as a wrapper around it or in place."""
    return hasattr(model, "_orig_mod") or any(
        getattr(module, "_compiled_call_impl", None) is not None for module in model.modules()
    )
