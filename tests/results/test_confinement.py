"""A confined process cannot do what it gave up, and still can do the rest. Each case is a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from results import confinement
from results.confinement import Rights

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="landlock and namespaces are Linux's")


def confined(rights: str, then: str) -> subprocess.CompletedProcess[str]:
    """Runs `then` in a process that has only these rights left. `missing`: what the system does not offer."""
    code = "from pathlib import Path\nimport os, socket, subprocess\nfrom results.confinement import Rights, confine\n"
    code += f"missing = confine(Rights({rights}))\n{then}\n"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_it_writes_in_its_folder_and_nowhere_else(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "old").write_text("old")
    then = f"""
(Path({str(inside)!r}) / 'made').write_text('made')
for act in (lambda p: (p / 'new').write_text('x'), lambda p: (p / 'old').write_text('x'), lambda p: (p / 'd').mkdir(),
            lambda p: (p / 'old').unlink(), lambda p: os.truncate(p / 'old', 0)):
    try:
        act(Path({str(outside)!r}))
    except PermissionError:
        print('refused')
print('missing', missing, Path({str(outside / "old")!r}).read_text())
"""
    done = confined(f"writable=(Path({str(inside)!r}), Path('/dev/null'))", then)
    if "missing ()" not in done.stdout:
        pytest.skip(f"not offered here: {done.stdout}")
    assert done.stdout == "refused\n" * 5 + "missing () old\n"
    assert (inside / "made").read_text() == "made"
    assert [path.name for path in outside.iterdir()] == ["old"]


def test_it_reaches_no_server(tmp_path):
    then = """
for line in missing:
    print(line)
with socket.socket() as listening, socket.socket() as asking:
    try:
        asking.connect(('127.0.0.1', PORT))
        print('connected')
    except OSError as fault:
        print('refused')
"""
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert confined("", then.replace("PORT", str(port))).stdout == "connected\n"
        done = confined("network=False", then.replace("PORT", str(port)))
    assert done.stdout.endswith("refused\n"), done


def test_it_starts_no_program():
    done = confined("programs=False", "print(missing)\nsubprocess.run(['true'])")
    assert "PermissionError" in done.stderr or "landlock" in done.stdout


def test_its_memory_ends():
    done = confined("memory_bytes=200_000_000", "bytearray(100_000_000)\nprint('some')\nbytearray(300_000_000)")
    assert done.stdout == "some\n"
    assert done.stderr.endswith("MemoryError\n")


def test_its_time_ends():
    assert confined("cpu_s=1", "while True: pass").returncode in (-signal.SIGXCPU, -signal.SIGKILL)


def test_its_files_end(tmp_path):
    path = tmp_path / "file"
    done = confined("file_bytes=1000", f"Path({str(path)!r}).write_bytes(bytes(2000))")
    assert "File too large" in done.stderr
    assert path.stat().st_size == 1000


def test_it_dies_with_its_parent(tmp_path):
    """The parent starts a child that would sleep for a minute, and is killed."""
    mark = tmp_path / "pid"
    child = "import os, time; from results.confinement import die_with_parent; assert die_with_parent()\n"
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


class Kernel:
    """A libc whose landlock has a version, and refuses to make a ruleset."""

    def __init__(self, version: int) -> None:
        self.version, self.rulesets = version, []

    def syscall(self, number, first, size, flags):
        if flags:
            return self.version
        self.rulesets.append((first._obj.fs, first._obj.net, size.value))
        return -1


@pytest.mark.parametrize(
    ("version", "network", "tcp", "size"), [(3, False, 0, 8), (4, False, 0b11, 16), (4, True, 0, 16), (3, True, 0, 8)]
)
def test_tcp_is_taken_away_where_landlock_knows_it(monkeypatch, version, network, tcp, size):
    kernel = Kernel(version)
    monkeypatch.setattr(confinement, "_libc", lambda: kernel)
    assert confinement._landlock(Rights(programs=False, network=network))
    assert kernel.rulesets == [(1, tcp, size)]  # 1: starting programs
