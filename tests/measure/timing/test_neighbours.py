"""Definition, injected fault: other processes' share of the processors by hand, and Ctrl-C while a server starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from measure.timing.disturbance import Neighbours, ProcessorUse, neighbours_warning, others_ratio

TICKS = os.sysconf("SC_CLK_TCK")


def account(path: Path, **seconds: float) -> None:
    """A /proc/stat of two processors."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    line = " ".join(str(round(seconds.get(name, 0) * TICKS)) for name in names)
    path.write_text(f"cpu  {line} 0 0\ncpu0 0\ncpu1 0\nintr 5\n")


def test_others_are_all_work_but_ours_over_all_processors(tmp_path: Path) -> None:
    stat, own, wall = tmp_path / "stat", iter([10.0, 13.0]), iter([0.0, 5.0])
    account(stat, user=100, idle=50, iowait=9)
    watch = Neighbours(stat, lambda: next(own), lambda: next(wall))
    account(stat, user=103, system=1, steal=1, idle=60, iowait=50)
    # 5 s of work in 5 s on two processors, 3 of it ours: 2 of 10 s are others'
    assert others_ratio([watch.used()]) == pytest.approx(0.2)


def test_windows_are_taken_together_and_one_of_unknown_use_makes_all_unknown() -> None:
    """0.02 s of others in 0.4 s of processors, 0.01 s less than none by the ticks in 0.2 s: 0.01 of 0.6 s."""
    assert others_ratio([ProcessorUse(0.02, 0.4), ProcessorUse(-0.01, 0.2)]) == pytest.approx(0.01 / 0.6)
    assert others_ratio([ProcessorUse(-0.01, 0.2)]) == 0.0
    assert others_ratio([ProcessorUse(0.02, 0.4), ProcessorUse(None, 0.0)]) is None
    assert others_ratio([]) is None


def test_a_warning_from_five_percent_on() -> None:
    assert neighbours_warning(None) == neighbours_warning(0.049) == ""
    assert neighbours_warning(0.47) == "busy: others used 47% of the processors while this was timed"


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


@pytest.mark.parametrize("delay_s", [0.0, 0.2, 1.0])
def test_ctrl_c_while_it_starts_shows_no_traceback(delay_s: float) -> None:
    """Before its first import, and between the many of torch."""
    done = run("-c", INTERRUPTED, str(delay_s))
    assert done.stdout == "stopped\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("arguments", "environ"), [((), {}), ((str(ROOT),), {"PYTHONPATH": ""})])
def test_a_child_of_it_answers_ctrl_c(tmp_path: Path, arguments: tuple[str, ...], environ: dict[str, str]) -> None:
    """Also of a server that cannot import this project."""
    script = tmp_path / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    done = run(str(script), *arguments, **environ)
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_it_ends_where_its_parent_has_ended_already() -> None:
    """A server whose parent was killed before it got here would import torch for nobody, with the terminal open."""
    words = "import measure.device.server_end; print('went on')"
    done = run("-c", words, FLOPLEDGER_SERVER_OF="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run("-c", words, FLOPLEDGER_SERVER_OF="").stdout == "went on\n"


def test_no_account_is_unknown_and_more_than_all_is_all(tmp_path: Path) -> None:
    assert others_ratio([Neighbours(tmp_path / "absent").used()]) is None
    (tmp_path / "odd").write_text("cpu words\n")
    assert others_ratio([Neighbours(tmp_path / "odd").used()]) is None
    stat, wall = tmp_path / "stat", iter([0.0, 1.0])
    account(stat)
    watch = Neighbours(stat, lambda: 0.0, lambda: next(wall))
    account(stat, user=1000)
    assert others_ratio([watch.used()]) == 1.0
