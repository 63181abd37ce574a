"""Definition, command, injected fault: `runners.doctor --peaks`, exit codes, and each check of facts made by hand."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from analysis.counters import CounterEntry
from results.records.cell import Telemetry
from runners import doctor as doctor_command
from runners import machine_checks as checks
from runners.machine_checks import Check
from tests.support.fakes.commands import refused, running

ROOT = Path(__file__).parents[3]

L40S_TABLE = """\
NVIDIA L40S: dense peaks
unit            TFLOP/s  at MHz  verification  what runs it
─────────────────────────────────────────────────────────────────────────────────────
fp64              1.431    2519  derived       vector units (CUDA cores)
fp32               91.6    2520  retrieved     vector units (CUDA cores)
tf32                183    2517  retrieved     tensor units, fp32 accumulation
fp16             362.05    2490  retrieved     tensor units, fp32 accumulation
bf16             362.05    2490  retrieved     tensor units, fp32 accumulation
fp8                 733    2520  retrieved     tensor units, fp32 accumulation
int8                733    2520  retrieved     tensor units, int32 accumulation
fp64_tensor        none                        tensor units; for reading only
fp16_fp16acc      366.4    2520  derived       fp16 accumulation; for reading only
fp16_cuda_core    91.61    2520  derived       without tensor units; for reading only

bandwidth: 864 GB/s (retrieved)
source:    NVIDIA L40S datasheet (retrieved)
evidence:  reseller's copy of the datasheet (91.6; 183; 362.05; 733; 864 GB/s)
note:      366 / 733 / 1466 are the figures with sparsity

Utilization divides by the dense peak of the unit that runs an operation; a multiply-add is 2 FLOP.
"""


def test_peaks_for_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor_command.main(["--peaks", "NVIDIA L40S"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == L40S_TABLE.splitlines()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--peaks", "NVIDIA L40X", "--format", "json"],
            ("of the table of peaks, got 'NVIDIA L40X', nearest NVIDIA L40 or NVIDIA L40S or NVIDIA L4\n",),
        ),
        (
            ["--peaks", "NVIDIA GeForce RTX 4090 Laptop GPU"],
            ("error: no peaks for 'NVIDIA GeForce RTX 4090 Laptop GPU': ", "clock and power to the laptop"),
        ),
        (["--format", "xml"], ("expected table, csv or json, got 'xml'",)),
        (["everything"], ("'everything'",)),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    refused(running(doctor_command.main, capsys)(*arguments), *words)


HOST: dict[str, Any] = {"cpu_usable": 8, "load_1min": 0.5, "governor": "performance", "cpu_quota": None}
TORCH: dict[str, Any] = {"torch": "2.15.0+cu132", "cuda": "13.2", "hip": None, "torch_error": None}
H200: dict[str, Any] = {
    "device": "cuda",
    "name": "NVIDIA H200",
    "compute_capability": "9.0",
    "multiprocessors": 132,
    "memory_bytes": 150_754_820_096,
    "error": None,
}


def states(lines: Any) -> list[tuple[str, str]]:
    return [(line.topic, line.state) for line in lines]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [("load", "ok"), ("governor", "ok")]),
        ({"load_1min": 4.1}, [("load", "warn"), ("governor", "ok")]),  # more than half of 8 cores
        ({"load_1min": 4.0}, [("load", "ok"), ("governor", "ok")]),
        ({"governor": "powersave"}, [("load", "ok"), ("governor", "warn")]),
        ({"governor": None}, [("load", "ok"), ("governor", "ok")]),
        ({"cpu_quota": 2.5}, [("load", "ok"), ("governor", "ok"), ("quota", "warn")]),
    ],
)
def test_host(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert states(checks.host_checks({**HOST, **change})) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [("torch", "ok"), ("torch build", "ok")]),
        ({"torch": "2.11.0"}, [("torch", "ok"), ("torch build", "ok")]),
        ({"torch": "2.13.0+cpu", "cuda": None}, [("torch", "warn"), ("torch build", "warn")]),
        ({"torch": "2.10.0"}, [("torch", "warn"), ("torch build", "ok")]),
        ({"torch": "2.16.0"}, [("torch", "warn"), ("torch build", "ok")]),
        ({"torch_error": "ImportError: libcudart.so.13"}, [("torch", "missing")]),
    ],
)
def test_torch(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    lines = list(checks.torch_checks({**TORCH, **change}))
    assert states(lines) == expected
    assert checks.is_fit(lines) == (("torch", "missing") not in expected)


def test_a_torchvision_for_another_torch_makes_the_machine_unfit() -> None:
    def mismatched(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist")

    line = checks.torchvision_check(mismatched)
    assert (line.state, line.fact) == ("missing", "RuntimeError: operator torchvision::nms does not exist")
    assert not checks.is_fit([line])


def test_a_known_gpu_has_its_row_and_a_slice_has_none() -> None:
    device, row = checks.device_checks(H200)
    assert device.fact == "cuda: NVIDIA H200, 9.0, 132 multiprocessors, 151 GB"
    assert (row.state, row.fact) == ("ok", "NVIDIA H200 datasheet (3002446) (retrieved)")
    for change in ({"multiprocessors": 16}, {"name": "NVIDIA H200 MIG 1g.18gb"}):
        _, row = checks.device_checks({**H200, **change})
        assert row.state == "missing"
        assert "measured peak" in row.cost
    _, row = checks.device_checks({**H200, "name": "NVIDIA A30", "multiprocessors": 56})
    assert row.state == "warn"  # from memory
    assert row.cost


@pytest.mark.parametrize(
    ("version", "usable", "state"),
    [(None, False, "missing"), (None, True, "warn"), ("580.1", False, "warn"), ("580.1", True, "ok")],
)
def test_driver(version: str | None, usable: bool, state: str) -> None:
    assert states(checks.driver_checks(version, usable)) == [("driver", state)]


STATE: dict[str, Any] = {
    "sm_clock_hz": 345_000_000,
    "power_w": 76.2,
    "energy_j": 1.0,
    "temperature_c": 31.0,
    "event_reasons": ["gpu_idle"],
    "other_processes": 0,
    "mig": False,
    "ecc": True,
    "persistence": True,
    "power_limit_w": 700.0,
    "power_limit_default_w": 700.0,
}

CALM = {"telemetry": "ok", "other users": "ok", "power limit": "ok", "temperature": "ok", "ecc": "ok"} | {
    "throttling": "ok"
}


class Gpu:
    """A device with this state, in place of NVML's."""

    adapter = "nvml"

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self.reasons: dict[str, str] = {"energy_j": "Not Supported"}

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *fault: object) -> None:
        return None

    def preflight(self) -> dict[str, Any]:
        return self.state

    def poll(self) -> Telemetry:
        fields = {field.name for field in dataclasses.fields(Telemetry)} & self.state.keys()
        return Telemetry(cell_id="", attempt=0, time_s=1.0, **{field: self.state[field] for field in fields})


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({}, {}),
        ({"energy_j": None}, {"telemetry": "warn"}),
        ({"other_processes": 1}, {"other users": "warn"}),
        ({"other_processes": None}, {"other users": "warn"}),
        ({"mig": True}, {"mig": "warn"}),
        ({"power_limit_w": 500.0}, {"power limit": "warn"}),
        ({"power_limit_default_w": None}, {}),
        ({"temperature_c": 80.0}, {"temperature": "warn"}),
        ({"temperature_c": 79.0}, {}),
        ({"persistence": False}, {"persistence": "warn"}),
        ({"event_reasons": ["gpu_idle", "hw_thermal_slowdown"]}, {"throttling": "warn"}),
        ({"event_reasons": ["0x800"]}, {"throttling": "warn"}),  # what NVML does not name
        ({"event_reasons": ["gpu_idle", "sw_power_cap"]}, {"throttling": "warn"}),
    ],
)
def test_the_state_of_a_gpu(change: dict[str, Any], difference: dict[str, str]) -> None:
    lines = list(checks.telemetry_checks("cuda:0", lambda device: Gpu({**STATE, **change})))
    assert dict(states(lines)) == CALM | difference
    assert all(bool(line.cost) == (line.state != "ok") for line in lines)


def test_an_absent_counter_says_what_to_install_and_is_not_needed() -> None:
    requires = {"there": "pytest>=8", "gone": "no-such-counter>=1", "own": "", "half": "pytest>=8 no-such-friend>=1"}
    counters = {name: CounterEntry("m:count", requires=packages) for name, packages in requires.items()}
    lines = list(checks.counter_checks(counters))
    assert [line.state for line in lines] == ["ok", "missing", "ok", "missing"]
    assert "python -m pip install 'pytest>=8' 'no-such-friend>=1'" in lines[-1].cost
    assert checks.is_fit(lines)


@pytest.mark.parametrize(
    ("text", "user", "state"),
    [
        ("RmProfilingAdminOnly: 1\n", 1000, "warn"),
        ("RmProfilingAdminOnly: 0\n", 1000, "ok"),
        ("RmProfilingAdminOnly: 1\n", 0, "ok"),
        (None, 0, "missing"),
    ],
)
def test_performance_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, user: int, state: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    parameters = tmp_path / "params"
    if text is not None:
        parameters.write_text(text)
    check = checks.permission_check(parameters)
    assert (check.topic, check.state) == ("permission", state)


@pytest.fixture(scope="module")
def lines() -> list[Check]:
    return checks.all_checks(ROOT / "results" / "runs")


def test_every_line_of_this_machine_says_what_its_absence_costs(lines: list[Check]) -> None:
    for line in lines:
        assert line.state in ("ok", "warn", "missing")
        assert line.fact
        assert bool(line.cost) == (line.state != "ok"), line
    topics = {line.topic for line in lines}
    assert {"python", "torch", "torchvision", "device", "peaks", "driver", "load", "counter", "nvtx", "disk"} <= topics


def test_an_unfit_machine_gives_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [Check("torch", "missing", "ImportError", "nothing can be measured", needed=True)]
    monkeypatch.setattr(checks, "all_checks", lambda runs: bad)
    assert doctor_command.main([]) == 1
    assert "Not fit to measure: torch missing." in capsys.readouterr().out
