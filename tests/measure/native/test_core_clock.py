"""The clock of a core: from cpufreq, or from a chain of additions whose code is that of an assembler."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from measure.native.core_clock import ADDITIONS, LONG, SHORT, chain_code, chain_hz, core_clock_hz
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
