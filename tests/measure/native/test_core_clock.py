"""The clock of a core: from cpufreq, or from a chain of additions whose code is that of an assembler.

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

from measure.native import kernels
from measure.native.kernels import (
    ADDITIONS,
    LONG,
    MOST_LOOKS,
    ROUNDS,
    SHORT,
    chain_code,
    chain_hz,
    compiled_program,
    issue_rate,
    ping_code,
    pong_code,
    round_trip_s,
)
from results.errors import Unavailable

HERE = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the chain is code of x86-64 Linux"
)


STORE = "movl ${value}, (%rdi)\n"
WAIT = f"mov ${MOST_LOOKS}, %ecx\n2: dec %ecx\njz 3f\ncmpl ${{value}}, (%rdi)\njne 2b\n"
ROUND_TRIP = "mov %rsi, %rax\n1:\n{}dec %rax\njnz 1b\n3: ret\n"
CHAIN = "mov %rdi, %rcx\nxor %eax, %eax\nmov $3, %edx\n1:\n"
CHAIN += f".rept {ADDITIONS}\nadd %rdx, %rax\n.endr\ndec %rcx\njnz 1b\nret\n"


@HERE
@pytest.mark.parametrize(
    ("code", "source"),
    [
        (chain_code, CHAIN),
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


class Core:
    """One addition a cycle of `hz`; each call takes `call_ns` beside that, and `late_ns` more every second time."""

    def __init__(self, hz: float, call_ns: int = 0, late_ns: int = 0) -> None:
        self._hz, self._call_ns, self._late_ns = hz, call_ns, late_ns
        self._calls, self.ns = 0, 0.0

    def chain(self, rounds: int) -> None:
        self._calls += 1
        self.ns += 1e9 * ADDITIONS * rounds / self._hz + self._call_ns + self._late_ns * (self._calls % 2)

    def now_ns(self) -> int:
        return round(self.ns)


def test_the_call_and_a_late_one_are_not_in_the_clock() -> None:
    core = Core(2.5e9, call_ns=900, late_ns=70_000)
    assert chain_hz(core.chain, core.now_ns) == pytest.approx(2.5e9, rel=1e-4)


def test_a_clock_that_stands_still_gives_none() -> None:
    with pytest.raises(Unavailable, match=f"a chain of {LONG} rounds took 0 ns, one of {SHORT} 0 ns"):
        chain_hz(lambda _rounds: None, lambda: 5)


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
    assert kernels.SOURCE.read_text().startswith("/* What one core can issue")


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
