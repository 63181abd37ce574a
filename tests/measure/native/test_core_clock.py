"""The clock of a core: from cpufreq, or from a chain of additions whose code is that of an assembler.

The C kernel: what is read from its lines, by hand; that it counts what a core issues; and what it says without.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from measure.native import kernels
from measure.native.core_clock import ADDITIONS, LONG, SHORT, chain_code, chain_hz, core_clock_hz
from measure.native.kernels import compiled_program, issue_rate, read_rate
from results.errors import Unavailable

SOURCE = "mov %rdi, %rcx\nxor %eax, %eax\nmov $3, %edx\n1:\n"
SOURCE += f".rept {ADDITIONS}\nadd %rdx, %rax\n.endr\ndec %rcx\njnz 1b\nret\n"
HERE = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the chain is code of x86-64 Linux"
)


@HERE
def test_the_chain_is_what_an_assembler_makes_of_it(tmp_path: Path) -> None:
    if shutil.which("as") is None or shutil.which("objcopy") is None:
        pytest.skip("no assembler")
    (tmp_path / "chain.s").write_text(SOURCE)
    subprocess.run(["as", "-o", "chain.o", "chain.s"], cwd=tmp_path, check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "chain.o", "chain.bin"], cwd=tmp_path, check=True)
    assert chain_code() == (tmp_path / "chain.bin").read_bytes()


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


@HERE
def test_the_clock_of_this_core_is_one_that_cores_have(tmp_path: Path) -> None:
    """Nothing under the root: it is timed. The most of five, since a neighbour may stretch each try."""
    assert 0.5e9 < max(core_clock_hz(tmp_path) for _ in range(5)) < 7e9


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


def test_reading_is_the_sum_over_threads(tmp_path: Path) -> None:
    rate, passes = read_rate(program(tmp_path, "read 1000000\n0 0.001\n1 0.001\n1 0.002\n"), (0, 1), 4096, 0.1)
    assert (rate, passes) == (pytest.approx(2e9), 3)


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


def test_the_kernel_counts_whole_instructions_a_clock() -> None:
    """A core of either kind issues one to four 128-bit operations a clock: whole numbers of them in the median,
    whoever takes turns with it."""
    if shutil.which("cc") is None:
        with pytest.raises(Unavailable), compiled_program(PLAIN):
            pass
        return
    with compiled_program(PLAIN) as built:
        found = issue_rate(built, (0,), 0.05)
        rate, _ = read_rate(built, (0,), 16 << 10, 0.02)
    assert 0.3e9 < found.clock_hz < 8e9
    assert 0.45 < found.per_clock < 4.2
    assert rate > 1e9
    assert kernels.SOURCE.read_text().startswith("/* What one core can issue")
