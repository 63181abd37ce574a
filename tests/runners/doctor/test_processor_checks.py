"""The doctor's lines of a CPU, and `--peaks` of one."""

import csv
import json
from dataclasses import replace

import pytest

from analysis.devices.processors import Processor
from measure.device.cpu_identity import Allowance
from results.records.cell import Ceiling
from runners import doctor as command
from runners import machine_checks as processor
from runners.machine_checks import identity_check
from tests.support.fakes.commands import refused, running

XEON = Processor("GenuineIntel", "6", "85", "4", "Intel(R) Xeon(R) Silver 4114 CPU", frozenset({"fma", "avx512f"}))
ALLOWED = Allowance((0, 1, 2, 3), (0, 1), 2, 1, 1.5)
ROW = Ceiling(
    sitting="",
    device="cpu",
    precision="",
    unit="fp32",
    operation="issue",
    shape="avx512f",
    flop_per_s=240e9,
    sm_clock_hz=3.75e9,
    instructions="avx512f",
    microarchitecture="Skylake server, one unit",
    cores=2.0,
    per_clock=1.0,
    derived_flop_per_s=240e9,
    threads=2,
)


def test_a_processor_that_is_known_and_one_that_is_not() -> None:
    line = identity_check(XEON, ALLOWED, 4)
    assert line.state == "ok"
    assert line.fact == (
        "Skylake server, one unit; family 6 model 85 stepping 4; 1.5 of 2 cores with 4 threads of torch, 4 processors "
        "in its affinity; 2 hardware threads a core; 1 NUMA node; a quota of 1.5 processors"
    )
    hidden = identity_check(replace(XEON, name="Intel Xeon Processor"), ALLOWED, 4)
    assert (hidden.state, hidden.cost[:16]) == ("warn", "no derived peak:")


def test_peaks_of_this_processor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("runners.machine_checks.processor", lambda: XEON)
    monkeypatch.setattr(processor, "core_rows", lambda threads: [ROW])
    assert command.main(["--peaks", "cpu", "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["derived_flop_per_s"] for row in rows if row["unit"] == "fp32"] == ["240000000000.0", ""]
    hidden = replace(XEON, name="Intel Xeon Processor")
    monkeypatch.setattr("runners.machine_checks.processor", lambda: hidden)
    words = "parts of GenuineIntel family 6 model 85 have one FMA unit or two"
    refused(running(command.main, capsys)("--peaks", "cpu"), words)


def test_peaks_of_a_microarchitecture(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--peaks", "neoverse v2"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "Neoverse V2: one core in one clock"
    assert command.main(["--peaks", "Golden Cove server", "--format", "json"]) == 0
    units = json.loads(capsys.readouterr().out)["units"]
    assert {row["instructions"]: row["flop_per_clock"] for row in units if row["unit"] != "fp64"} == {
        "avx512f": 2 * 16 * 2,
        "fma": 2 * 8 * 2,
        "amx_bf16": 1024,
        "amx_int8": 2048,
    }
    assert all(row["derived_flop_per_s"] is None for row in units)  # no clock, no peak
