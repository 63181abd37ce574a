"""A CPU's derived peak: by hand, what refuses it, and how buffers of the cache levels are chosen."""

from contextlib import nullcontext

import pytest

from analysis.devices.processors import Processor, vector_units
from measure.ceiling import core_peaks
from measure.ceiling.core_peaks import IssueRate, derive_peak, issue_rows
from measure.device.cpu_identity import Allowance
from results.records.cell import Ceiling

BLANK = Ceiling(sitting="s0", device="cpu", precision="fp32", unit="", operation="", shape="")
TWO_UNITS = next(row for row in vector_units("Golden Cove server") if row.instructions == "avx512f")
FLAGS = frozenset({"sse2", "avx", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"})
ALLOWED = Allowance((0, 1, 2, 3), (0, 1), 2, 1, None)


@pytest.mark.parametrize(
    ("per_clock", "has_peak", "words"),
    [
        (2.0, True, ""),
        (1.9, True, ""),
        (1.5, True, "others may use its units"),
        (1.0, False, "no derived peak: a core issued 1 avx512f instructions a clock, the table has 2: processors may"),
        (2.2, False, "no derived peak: a core issued 2.2 avx512f instructions a clock, the table has 2"),
    ],
)
def test_the_kernel_confirms_the_table_or_there_is_no_peak(per_clock: float, has_peak: bool, words: str) -> None:
    peak, reason = derive_peak(TWO_UNITS, 2.0, 3.8e9, per_clock, "")
    assert words in reason
    assert bool(reason) == bool(words)
    assert peak == (pytest.approx(2 * 2 * 16 * 2 * 3.8e9) if has_peak else None)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"avx512f": (3.8e9, 2.0), "fma": (4.2e9, 2.0), "amx_bf16": (3.8e9, 1 / 16), "avx512_bf16": (3.8e9, 0.5)}

    def rate(program: str, processors: tuple[int, ...], seconds: float) -> IssueRate:
        clock_hz, per_clock = rates[program]
        return IssueRate(len(processors), clock_hz, per_clock, 1000, 1000 / (clock_hz * per_clock), 9)

    here = Processor("GenuineIntel", "6", "143", "8", "Intel(R) Xeon(R) Platinum 8480+", FLAGS)
    monkeypatch.setattr(core_peaks, "processor", lambda: here)
    monkeypatch.setattr(core_peaks, "allowance", lambda: ALLOWED)
    monkeypatch.setattr(core_peaks, "compiled_program", nullcontext)
    monkeypatch.setattr(core_peaks, "issue_rate", rate)


@pytest.mark.usefixtures("here")
def test_rows_of_units_and_instructions() -> None:
    rows = issue_rows(BLANK, ("bf16", "fp32", "fp32"), 2, 0.1)
    assert [(row.unit, row.instructions) for row in rows] == [
        ("bf16", "amx_bf16"),
        ("fp32", "avx512f"),
        ("fp32", "fma"),
    ]
    tiles, wide, half = rows
    assert tiles.derived_flop_per_s == pytest.approx(2 * 3.8e9 * 1024)
    assert wide.derived_flop_per_s == pytest.approx(2 * 3.8e9 * 64)
    assert half.derived_flop_per_s == pytest.approx(2 * 4.2e9 * 32)
    for row in rows:  # what the kernel did on both cores is what they can do
        assert row.flop_per_s == pytest.approx(row.derived_flop_per_s)
        assert (row.operation, row.cores, row.threads, row.repeats) == ("issue", 2.0, 2, 9)
    assert issue_rows(BLANK, ("fp32",), 1, 0.1)[0].derived_flop_per_s == pytest.approx(3.8e9 * 64)
    assert len(issue_rows(BLANK, ("fp32",), 1, 0.1, fastest=True)) == 1
