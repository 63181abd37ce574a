"""Injected fault: a process ends when the one that started it is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


def test_it_dies_with_its_parent(tmp_path):
    """The parent starts a child that would sleep for a minute, and is killed."""
    mark = tmp_path / "pid"
    child = "import os, time; from results.process import die_with_parent; assert die_with_parent()\n"
    child += f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT) as started:
        end_s = time.monotonic() + 30
        while not (mark.exists() and mark.read_text()):
            assert time.monotonic() < end_s
            time.sleep(0.02)
        pid = int(mark.read_text())
        os.kill(pid, 0)
        started.kill()
        started.wait()
    end_s = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < end_s, "it lives on"
        time.sleep(0.02)
