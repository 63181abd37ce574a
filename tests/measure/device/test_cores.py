"""The code of the round trip is that of an assembler.

The C kernel: what is read from its lines, by hand; that it counts what a core issues; and what it says without.
The round trip of a cache line: its shortest try counts, and two threads take it.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from measure.ceiling.core_peaks import SOURCE, compiled_program, issue_rate
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


PLAIN = "asimd" if platform.machine() in ("aarch64", "arm64") else "sse2"
"""Instructions that every processor of the kind has."""


def program(folder: Path, text: str, code: int = 0) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_rate_and_clock_are_medians_of_bursts(tmp_path: Path) -> None:
    """Chains of 300,000 additions in 100 µs: 3 GHz. 1,800,000 instructions in 300 µs: 6 a ns, 2 a clock. One burst of
    five was set aside for 10 ms."""
    lines = ["chain 300000 kernel 1800000", *4 * ["0 0.0001 0.0003"], "1 0.0001 0.0103", ""]
    found = issue_rate(program(tmp_path, "\n".join(lines)), (0, 3), 0.1)
    assert found.clock_hz == pytest.approx(3e9)
    assert found.per_clock == pytest.approx(2.0)
    assert (found.threads, found.bursts) == (2, 5)
    assert found.threads * found.instructions / found.burst_s == pytest.approx(2 * 6e9)


def test_the_kernel_counts_whole_instructions_a_clock() -> None:
    """A core of either kind issues one to four 128-bit operations a clock: whole numbers of them in the median,
    whoever takes turns with it."""
    if shutil.which("cc") is None:
        with pytest.raises(Unavailable), compiled_program(PLAIN):
            pass
        return
    with compiled_program(PLAIN) as built:
        found = issue_rate(built, (0,), 0.05)
    assert 0.3e9 < found.clock_hz < 8e9
    assert 0.45 < found.per_clock < 4.2
    assert SOURCE.read_text().startswith("/* What one core can issue")


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


def test_a_program_that_fails_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("#!/bin/sh\necho 'the system refuses these registers: Operation not permitted' >&2\nexit 3\n")
    path.chmod(0o755)
    with pytest.raises(Unavailable, match="does not run here: the system refuses these registers"):
        issue_rate(path, (0,), 0.1)
    with pytest.raises(Unavailable, match="no burst"):
        issue_rate(program(tmp_path, "chain 1 kernel 1\n"), (0,), 0.1)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(Unavailable, match="no C compiler \\(no-such-compiler"), compiled_program(PLAIN):
        pass
    with pytest.raises(Unavailable, match="no kernel for mmx: expected one of sse2"), compiled_program("mmx"):
        pass
