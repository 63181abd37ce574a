"""What was planted in a stand-in comes out of the meter, which never waits for the device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.standin

SCRIPT = Path(__file__).parent / "programs" / "meter_on_device.py"
EFFICIENCY = 0.0005
UNITS = {"plain": ["fp32", "tf32"], "autocast": ["bf16"]}
"""torch lets cuDNN round to TF32 and cuBLAS not, unless told otherwise."""


@pytest.mark.parametrize("way", UNITS)
def test_planted_utilization_and_power_come_out_of_a_plain_loop(standin, way):
    watt = 300
    device = standin(efficiency=EFFICIENCY, kernel_ns=10, call_ns=10, idle_w=watt, busy_w=watt)
    done = device.run(sys.executable, str(SCRIPT), "12", way)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    found = answer["found"]
    assert found["steps"] == 10
    assert found["model_flop_per_step"] == answer["exact"]
    assert found["units"] == UNITS[way]
    assert found["utilization_ratio"] == pytest.approx(EFFICIENCY, rel=0.005)
    assert found["hfu_ratio"] == found["utilization_ratio"]
    assert found["device_name"].startswith("Stand-in of")
    # constant power: energy of an item is power × all time ÷ items, in steps or not
    time_s = found["step_time_s"] / found["goodput_ratio"]
    assert found["energy_per_item_j"] == pytest.approx(watt * time_s / 8, rel=0.1)
    assert found["warnings"] == []


def test_a_mask_on_the_device_is_copied_behind_the_loops_work_and_read_later(standin):
    """Kernels of 50 ms: what was copied has not arrived when the host asks at once, and has after a wait."""
    script = SCRIPT.parent / "padding_on_device.py"
    done = standin(kernel_ns=50_000_000).run(sys.executable, str(script), "4")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    found = answer["found"]
    assert found["steps"] == 2
    assert found["warnings"] == []
    assert found["mask_exact_flop_per_step"] is not None, found["attention_reasons"]
    assert (answer["pinned"], answer["early"]) == (True, False)
    assert answer["late"] == [True, [["all", 2, 16]]]
    assert answer["same_event"], "an event is used again once it was read"
    assert answer["side_stream"] == [0, 1, True], "a step waits for its masks, and the summary alone for the device"
