"""What `print(meter.summary())` says: utilization first, and only what is known."""

from __future__ import annotations

from typing import Any

from measure.meter.summary import MeterSummary

KNOWN: dict[str, Any] = {
    "steps": 17,
    "device": "cuda",
    "device_name": "NVIDIA H2000",
    "step_time_s": 0.0104,
    "step_time_low_s": 0.0096,
    "step_time_high_s": 0.0112,
    "model_flop_per_step": 1.3e9,
    "model_flop_per_s": 1.25e11,  # 1.3e9 FLOP in 0.0104 s
    "peak_flop_per_s": 1e12,
    "peak_source": "a sheet",
    "utilization_ratio": 0.125,  # 1.25e11 of 1e12
    "utilization_low_ratio": 0.116,
    "utilization_high_ratio": 0.1354,
}


def test_utilization_is_first() -> None:
    summary = MeterSummary(**KNOWN, items_per_s=1538.0, goodput_ratio=0.9985, warnings=("no energy: none here",))
    assert str(summary).splitlines() == [
        "MFU         12.5 % (11.6 to 13.5 %) of 1,000 GFLOP/s, a sheet",
        "steps       17 of 10.4 ms (9.6 to 11.2 ms) on NVIDIA H2000",
        "model FLOP  1.3 GFLOP a step, 125 GFLOP/s",
        "items       1,538 a second",
        "goodput     99.9 % of the time is in steps",
        "note: no energy: none here",
    ]


def test_hfu_is_beside_it_where_something_is_computed_again() -> None:
    again = MeterSummary(**KNOWN, recompute_flop_per_step=4e8, hfu_ratio=0.1635, energy_per_item_j=0.25)
    first, second, *_, last = str(again).splitlines()
    assert (first[:3], second) == ("MFU", "HFU         16.4 % of 1,000 GFLOP/s")
    assert last == "energy      0.25 J an item"


def test_what_is_not_known_is_a_note() -> None:
    unknown = MeterSummary(steps=3, device="cpu", device_name="", warnings=("no utilization: a CPU has no sheet",))
    assert str(unknown).splitlines() == ["steps       3 on cpu", "note: no utilization: a CPU has no sheet"]
