"""The C kernel: what is read from its lines, by hand; that it counts what a core issues; and what it says without."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from measure.native import kernels
from measure.native.kernels import compiled_program, issue_rate, read_rate
from results.errors import Unavailable

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
