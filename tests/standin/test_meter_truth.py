"""Known answer: the utilization and power planted in a stand-in come out of the meter, which never waits for it."""

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
