"""The planted machine tells every reading of a block, and a reading that a machine does not tell has its reason."""

from pathlib import Path

import pytest

from benchmarks.readings import block_readings
from measure.timing import disturbance


def test_the_planted_machine_tells_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven readings, each with two times; without its file one has the reason."""
    block_readings.plant(tmp_path)
    monkeypatch.setattr(disturbance, "ROOT", tmp_path)
    lines = list(block_readings.rows("planted", readings=2))
    assert len(lines) == 7
    assert [line.count(" µs |") for line in lines] == [2] * 7
    assert (disturbance.disturbance().pressure_s, disturbance.core_state().core_clock_hz) == (0.123456, 2.5e9)
    (tmp_path / "proc/pressure/cpu").unlink()
    (lost,) = (line for line in block_readings.rows("planted", readings=2) if "`pressure_s`" in line)
    assert lost == "| planted | `pressure_s` | – | /proc/pressure/cpu: No such file or directory |"
