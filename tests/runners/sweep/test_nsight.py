"""Injected fault: Nsight Systems as a sweep uses it; each of its faults is one line, and nothing of it is left."""

import gzip
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from measure.profile import nsight as profiler_nsight
from results.errors import Unavailable
from results.records.cell import Cell, non_default
from runners.sweep import nsight
from runners.sweep.findings import PassFindings, PassRecording
from runners.workers.pool import WorkerFault
from tests.support.fakes.fake_session import WORK, Scene, cell
from tests.support.fakes.real_sweeps import ROOT, lives

CUDA = Cell(model="synthetic_convolution", batch_size=2, device="cuda", methods=("batch",), profile="nsys")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Puts the stand-in on PATH, to do as it is told; its path."""
    script = tmp_path / "tools" / "nsys"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, str(ROOT / "tests/support/fakes/fake_nsys.py")])} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")

    def told(mode: str = "") -> str:
        monkeypatch.setenv("FAKE_NSYS", mode)
        return str(script)

    return told


def words(folder: Path, code: str = "pass") -> list[str]:
    """What records a small program in the place of a step."""
    target = [sys.executable, "-c", code, json.dumps(non_default(CUDA)), "batch"]
    return profiler_nsight.command("nsys", folder, target)


# --- is it there -----------------------------------------------------------------------------------------------------


def test_what_cannot_record_is_a_mistake_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^--profile nsys: expected a CUDA device.* got cpu; --profile kineto"):
        nsight.check([CUDA, cell(profile="nsys")], lambda _: "/bin/nsys")
    with pytest.raises(ValueError, match=r"^--profile nsys: expected the command nsys on PATH, found none: install NV"):
        nsight.check([CUDA], lambda _: None)
    broken = tmp_path / "nsys"
    broken.write_text("#!/bin/sh\necho a library is missing >&2; exit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ValueError, match="ended with status 3; it printed: a library is missing"):
        nsight.check([CUDA], lambda _: str(broken))
    broken.write_text("no program")
    with pytest.raises(ValueError, match=r"--version to answer: .*Exec format error"):
        nsight.check([CUDA], lambda _: str(broken))


# --- one recording ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "code", "reason"),
    [
        ("", "import sys; print('much'); print('error: out of memory', file=sys.stderr); sys.exit(1)", "out of memory"),
        ("", "import os; os.abort()", "nsys ended with status"),
        ("fail", "pass", "it printed: The target application cannot be profiled: made up"),
        ("nothing", "pass", "left no export (report.sqlite)"),
        ("no_kernels", "pass", "its export: its CUPTI tables hold no kernels"),
        ("early", "pass", "its export: no kernel was recorded in the step"),
        ("no_ranges", "pass", "its export: expected a range flopledger.step around each step"),
        ("cut", "pass", "its export: the SQLite file is cut"),
    ],
)
def test_each_fault_is_one_line_that_says_which(fake: Any, tmp_path: Path, mode: str, code: str, reason: str) -> None:
    fake(f"batch:{mode}" if mode else "")
    with pytest.raises((Unavailable, ValueError)) as caught:
        nsight.run_recording(words(tmp_path, code), str(tmp_path), 60.0)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value), "a folder that is gone by then"


def test_one_that_hangs_is_ended_at_its_limit_with_all_that_it_started(fake: Any, tmp_path: Path) -> None:
    fake("batch:hang")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match=r"nsys was killed at its limit of 3 s; it printed: Collecting data"):
        profiler_nsight.record(words(tmp_path), tmp_path, 3.0)
    assert time.monotonic() - begun < 30
    assert (tmp_path / "collected.qdstrm").exists(), "its temporary files are in the folder"
    left = [
        p for p in psutil.process_iter() if lives(p) and str(tmp_path) in str(_environ(p).get(profiler_nsight.MARK))
    ]
    assert left == [], "not even what is in a session of its own"


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


# --- a cell's works --------------------------------------------------------------------------------------------------


class Recorder:
    """A worker that answers in turn, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), []

    def call(self, task: str, command: list[str], folder: str, limit_s: float, *, timeout_s: float) -> Any:
        assert Path(folder).is_dir()
        assert timeout_s > limit_s, "it has time to say why"
        self.asked.append((task, command, folder, limit_s))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def test_each_work_has_a_command_a_recording_or_a_reason() -> None:
    said: list[str] = []
    left_s = iter([400.0, 100.0, -0.5])
    worker = Recorder(b"packed", WorkerFault("unavailable", "no kernels"), WorkerFault("timeout", "no time"))
    found = nsight.record(CUDA, ("one", "batch", "last"), worker, said.append, lambda: next(left_s))
    assert found.recordings == {"one": PassRecording(b"packed", said[0])}
    assert found.unprofiled == {
        "nsys batch": "no kernels",
        "nsys last": "no time",
    }
    assert [limit_s for *_, limit_s in worker.asked] == [nsight.LIMIT_S, 100.0, 0.0]
    assert [shlex.join(command) for _, command, *_ in worker.asked] == said
    assert not any(Path(folder).exists() for _, _, folder, _ in worker.asked)


def test_the_device_is_free_before_nsys_begins_and_only_profiled_works_are_recorded(tmp_path, monkeypatch) -> None:
    scene = Scene(tmp_path / "run", monkeypatch)
    scene.answers[nsight.TASK] = lambda command, folder, limit_s: b"recording of " + command[-1].encode()
    scene.answers[WORK] = lambda cell_id, work, profiled: (
        PassFindings(unprofiled={"one": "no memory"}) if work == "one" else PassFindings(profiled=[work])
    )
    asked = cell(methods=("one", "batch", "exact"), profile="nsys")
    (run,) = list(scene.rows([asked]))
    assert dict(run.unprofiled) == {"one": "no memory"}
    assert scene.said.index("end measure") < scene.said.index("start record")
    assert [command[-1] for command, *_ in scene.asked(nsight.TASK)] == ["batch"]
    kept = sorted(file.name for file in (tmp_path / "run" / "profiles").iterdir())
    stem = f"{asked.cell_id}-1-batch.nsys"
    assert kept == [f"{stem}.command.txt", f"{stem}.sqlite.gz"]
    assert {f"profiles/{name}" for name in kept} <= set(run.committed)
    assert " batch" in (tmp_path / "run" / "profiles" / kept[0]).read_text()
    assert " batch" in scene.stream.getvalue()


# --- what nsys starts ------------------------------------------------------------------------------------------------


def test_it_ends_when_the_process_that_wanted_it_is_gone() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    code = f"from runners.sweep import nsight; nsight._end_without({gone.pid})"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 1


def test_an_export_comes_back_whole_and_gzipped(fake: Any, tmp_path: Path) -> None:
    fake()
    folder = tmp_path / "one"
    folder.mkdir()
    packed = nsight.run_recording(words(folder), str(folder), 60.0)
    assert gzip.decompress(packed) == (folder / "report.sqlite").read_bytes()
