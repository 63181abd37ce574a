"""The round trip of a cache line: its code is an assembler's, its shortest try counts, and two threads take it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from measure.native.round_trip import MOST_LOOKS, ROUNDS, TRIES, ping_code, pong_code, round_trip_s, shortest_s
from results.errors import Unavailable

STORE = "movl ${value}, (%rdi)\n"
WAIT = f"mov ${MOST_LOOKS}, %ecx\n2: dec %ecx\njz 3f\ncmpl ${{value}}, (%rdi)\njne 2b\n"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (ping_code, STORE.format(value=1) + WAIT.format(value=0)),
        (pong_code, WAIT.format(value=1) + STORE.format(value=0)),
    ],
)
def test_the_code_is_what_an_assembler_makes_of_it(code, body: str, tmp_path: Path) -> None:
    if platform.machine() != "x86_64" or shutil.which("as") is None or shutil.which("objcopy") is None:
        pytest.skip("no assembler of x86-64")
    (tmp_path / "code.s").write_text(f"mov %rsi, %rax\n1:\n{body}dec %rax\njnz 1b\n3: ret\n")
    subprocess.run(["as", "-o", "code.o", "code.s"], cwd=tmp_path, check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "code.o", "code.bin"], cwd=tmp_path, check=True)
    assert code() == (tmp_path / "code.bin").read_bytes()


def test_the_shortest_try_counts() -> None:
    """Tries of 400, 90, 200 and 91 ns a round trip."""
    now_ns, each_ns = [0], iter((400, 90, 200, 91))

    def ping(rounds: int) -> int:
        now_ns[0] += rounds * next(each_ns)
        return 0

    assert shortest_s(ping, lambda: now_ns[0]) == pytest.approx(90e-9)
    assert TRIES == 4


def test_a_thread_that_does_not_answer_gives_none() -> None:
    with pytest.raises(Unavailable, match="did not answer"):
        shortest_s(lambda rounds: rounds)


@pytest.mark.skipif(sys.platform != "linux", reason="processors of a process are those of Linux")
def test_one_processor_alone_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {3})
    with pytest.raises(Unavailable, match="one processor alone"):
        round_trip_s()


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or len(os.sched_getaffinity(0)) < 2,
    reason="two processors of x86-64 Linux",
)
def test_the_round_trip_here_is_one_that_machines_have() -> None:
    """The least of ten tries, which may fail beside busy neighbours: between two hardware threads of a core 40 ns,
    between two sockets 1 µs. The thread that asks may use the processors that it might before."""
    before = os.sched_getaffinity(0)
    found = []
    for _ in range(10):
        try:
            found.append(round_trip_s())
        except Unavailable:
            continue
    assert found
    assert 5e-9 < min(found) < 5e-6
    assert os.sched_getaffinity(0) == before
    assert ROUNDS * min(found) < 1e-3
