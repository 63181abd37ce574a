"""The server that forks children: Ctrl-C and the end of its parent while it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

INTERRUPTED = """
import os, signal, sys, time
from measure.device.processes import prepare
prepare()
time.sleep(float(sys.argv[1]))
try:
    os.killpg(0, signal.SIGINT)  # as a terminal does: to every process of the command
    time.sleep(10)
except KeyboardInterrupt:
    time.sleep(0.5)  # as long as a traceback takes
    print("stopped")
"""

CHILD = """
import importlib, os, signal, sys
sys.path += sys.argv[1:]  # as a notebook does: the server does not know it
from measure.device.processes import PRELOAD, accept_interrupts, context, prepare

def interrupted():
    importlib.import_module(PRELOAD[0])
    if sys.argv[1:]:
        accept_interrupts()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        os._exit(7)

if __name__ == "__main__":
    prepare()
    child = context(PRELOAD).Process(target=interrupted)
    child.start()
    child.join(60)
    print(child.exitcode)
    child.kill()
"""


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Of this project's own modules, in a session of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
        check=False,
    )


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_ctrl_c_while_it_starts_shows_no_traceback(delay_s: float) -> None:
    """Before its first import, and between the many of torch."""
    done = run("-c", INTERRUPTED, str(delay_s))
    assert done.stdout == "stopped\n"
    assert done.stderr == ""


def test_a_child_of_it_answers_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    done = run(str(script))
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_it_ends_where_its_parent_has_ended_already() -> None:
    """A server whose parent was killed before it got here would import torch for nobody, with the terminal open."""
    words = "import measure.device.server_end; print('went on')"
    done = run("-c", words, FLOPLEDGER_SERVER_OF="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run("-c", words, FLOPLEDGER_SERVER_OF="").stdout == "went on\n"


def test_children_of_a_server_that_cannot_import_this_project_live_and_answer_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    done = run(str(script), str(ROOT), PYTHONPATH="")
    assert (done.stdout, done.stderr) == ("7\n", "")
