"""Real sweeps of tiny workloads: as processes of their own, for tests of what survives them, or from this process."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from tests.support.fakes.commands import module_of

ROOT = Path(__file__).parents[3]

QUICK = ("--device", "cpu", "--quick", "--target-ci", "0.9")
"""The shortest cell there is: a fifth of the usual times, and the widest interval is narrow enough."""

TINY = (*QUICK, "--models", "synthetic_matmul", "--methods", "exact")
"""About 1.5 s a cell on an idle core, and nothing counted by others."""

WORKS = (*QUICK, "--models", "synthetic_convolution", "--methods", "one,batch,epoch,exact", "--epoch-images", "7")
"""The shortest cell with every work: three more are profiled, and an epoch is run."""

ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
"""One thread: on a busy machine two of them mostly wait for each other, and the intervals would never be narrow."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "runners.sweep", *map(str, arguments)]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def under_torchrun(monkeypatch: Any, ranks: int) -> type[Sweep]:
    """Sweeps of this test are of so many ranks under torchrun."""
    run = ("torch.distributed.run", "--nproc-per-node", ranks, "--master-port", free_port(), "-m", "runners.sweep")
    monkeypatch.setattr(f"{__name__}.command", lambda *words: [sys.executable, "-m", *map(str, (*run, *words))])
    return Sweep


def rows(data: Any, record: type, run: Any) -> list[Any]:
    """A run's rows of one cell."""
    return [row for row in data.records(record) if row.cell_id == run.cell_id]


def sweep(*arguments: object, cwd: Path, timeout_s: float = 240.0) -> subprocess.CompletedProcess[str]:
    """A sweep from its start to its end."""
    return subprocess.run(
        command(*arguments), cwd=cwd, env=ENVIRON, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def here(
    *arguments: object, cwd: Path, command: str = "sweep", figures: bool = True
) -> subprocess.CompletedProcess[str]:
    """The same from this process, whose server has torch imported already; workers are processes as ever.

    The command may not import torch or torchvision, which are loaded here: asking for them is an ImportError.
    figures: whether to draw them, which takes seconds.
    """
    rebuild = importlib.import_module("runners.rebuild")
    drawing = rebuild._pictures
    main = importlib.import_module(module_of(command)).main
    out, err, handler, columns = (
        io.StringIO(),
        io.StringIO(),
        signal.getsignal(signal.SIGTERM),
        os.environ.get("COLUMNS"),
    )
    honest = builtins.__import__

    def importing(name: str, *scope: Any, **more: Any) -> Any:
        relative = more.get("level", scope[3] if len(scope) > 3 else 0) > 0
        if not relative and name.partition(".")[0] in ("torch", "torchvision"):
            raise ImportError(f"{name} in the parent process")
        return honest(name, *scope, **more)

    words = list(map(str, arguments))
    try:
        os.environ["COLUMNS"], builtins.__import__ = ENVIRON["COLUMNS"], importing
        rebuild._pictures = drawing if figures else lambda _out: {}
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        builtins.__import__, rebuild._pictures = honest, drawing
        signal.signal(signal.SIGTERM, handler)
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


class Sweep:
    """A sweep that runs, in a session of its own, whose lines on stderr are read as they come."""

    def __init__(self, *arguments: object, cwd: Path) -> None:
        self.process = subprocess.Popen(
            command(*arguments),
            cwd=cwd,
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []
        self.family: dict[int, psutil.Process] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += (line.rstrip("\n") for line in self.process.stderr)

    def wait_for(self, text: str, within_s: float = 120.0) -> str:
        """The line with this text, when it has been said."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            self.meet()
            for line in list(self.said):
                if text in line:
                    return line
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.02)
        raise AssertionError(f"never said {text!r}: {self.said}")

    def meet(self) -> None:
        """Learn which processes belong to it by now."""
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self.family.setdefault(child.pid, child)
        except psutil.NoSuchProcess:
            pass

    def run_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and self.process.poll() is None:
            self.meet()
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        self.meet()
        self.process.send_signal(number)

    def end(self, within_s: float = 60.0) -> int:
        """Its exit code; nothing of it is alive a few seconds later."""
        code = self.process.wait(within_s)
        self.no_survivors()
        self._reader.join(10)
        return code

    def no_survivors(self, within_s: float = 20.0) -> None:
        """The server may still be importing, and looks for its parent only then."""
        end_s = time.monotonic() + within_s
        while alive := [child for child in self.family.values() if lives(child)]:
            assert time.monotonic() < end_s, f"still alive: {alive}"
            time.sleep(0.05)

    @property
    def out(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *fault: Any) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                self._reader.join(30)
                stream.close()


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
