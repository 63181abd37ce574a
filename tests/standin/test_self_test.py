"""`runners.doctor --self-test` on a stand-in: an honest device passes, each lie fails the check that asks for it."""

from __future__ import annotations

import json
import sys

import pytest

pytestmark = pytest.mark.standin

HONEST = {"efficiency": 0.5, "elementwise_gbps": 2000}
LIES = {
    "events too long": ({"time_scale": 1.1}, "events"),
    "events with an offset of 5 ms": ({"event_offset_ns": 5e6}, "sleep"),
    "fp32 runs as tf32": ({"tf32_always": 1}, "rate fp32"),
    "twice the energy": ({"energy_scale": 2}, "energy"),
    "slower for 120 launches in 240": ({"wave_launches": 120, "wave_ratio": 0.3}, "intervals"),
}
"""What is wrong with the device → its plan, and the check that must fail."""


def self_test(device):
    """(exit code, {check: its row}, the document)."""
    done = device.run(sys.executable, "-m", "runners.doctor", "--self-test", "--device", "cuda", "--format", "json")
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    return done.returncode, {row["check"]: row for row in answer["checks"]}, answer


def test_an_honest_device_passes(standin):
    code, rows, answer = self_test(standin(**HONEST))
    assert (code, answer["verdict"]) == (0, "ok")
    assert {name for name, row in rows.items() if row["verdict"] != "ok"} == {"ieee fp32"}
    assert "computes nothing" in rows["ieee fp32"]["reason"]
    assert rows["rate tf32"]["found"] == pytest.approx(0.5 * 494.7e12, rel=0.01)
    assert answer["device"] == "Stand-in of NVIDIA H100 80GB HBM3"


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_fails_its_check_by_name(standin, lie):
    plan, check = LIES[lie]
    code, rows, answer = self_test(standin(**{**HONEST, **plan}))
    assert (code, answer["verdict"]) == (1, "failed")
    assert rows[check]["verdict"] == "failed", rows
    assert rows[check]["reason"]


@pytest.mark.slow
def test_a_faster_device_than_its_datasheet_fails_every_rate(standin):
    _, rows, _ = self_test(standin(**{**HONEST, "efficiency": 2}))
    rates = {name: row["verdict"] for name, row in rows.items() if name.startswith("rate")}
    assert set(rates.values()) == {"failed"}
