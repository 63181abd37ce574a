"""Known answer: the code of a cache line's round trip is an assembler's, and its time one that machines have."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from measure.device.cores import MOST_LOOKS, ROUNDS, ping_code, pong_code, round_trip_s
from results.errors import Unavailable

HERE = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the chain is code of x86-64 Linux"
)


STORE = "movl ${value}, (%rdi)\n"
WAIT = f"mov ${MOST_LOOKS}, %ecx\n2: dec %ecx\njz 3f\ncmpl ${{value}}, (%rdi)\njne 2b\n"
ROUND_TRIP = "mov %rsi, %rax\n1:\n{}dec %rax\njnz 1b\n3: ret\n"


@HERE
@pytest.mark.parametrize(
    ("code", "source"),
    [
        (ping_code, ROUND_TRIP.format(STORE.format(value=1) + WAIT.format(value=0))),
        (pong_code, ROUND_TRIP.format(WAIT.format(value=1) + STORE.format(value=0))),
    ],
)
def test_the_code_is_what_an_assembler_makes_of_it(code, source: str, tmp_path: Path) -> None:
    if shutil.which("as") is None or shutil.which("objcopy") is None:
        pytest.skip("no assembler")
    (tmp_path / "code.s").write_text(source)
    subprocess.run(["as", "-o", "code.o", "code.s"], cwd=tmp_path, check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "code.o", "code.bin"], cwd=tmp_path, check=True)
    assert code() == (tmp_path / "code.bin").read_bytes()


# --- the round trip of a cache line ---


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
