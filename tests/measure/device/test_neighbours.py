"""Other processes' share of the processors, from made-up accounts and from a real neighbour."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from measure.device.cpu_contention import Neighbours, Used, ratio_of, warning

TICKS = os.sysconf("SC_CLK_TCK")


def account(path: Path, **seconds: float) -> None:
    """A /proc/stat of two processors."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    line = " ".join(str(round(seconds.get(name, 0) * TICKS)) for name in names)
    path.write_text(f"cpu  {line} 0 0\ncpu0 0\ncpu1 0\nintr 5\n")


def test_others_are_all_work_but_ours_over_all_processors(tmp_path: Path) -> None:
    stat, own, wall = tmp_path / "stat", iter([10.0, 13.0]), iter([0.0, 5.0])
    account(stat, user=100, idle=50, iowait=9)
    watch = Neighbours(stat, lambda: next(own), lambda: next(wall))
    account(stat, user=103, system=1, steal=1, idle=60, iowait=50)
    # 5 s of work in 5 s on two processors, 3 of it ours: 2 of 10 s are others'
    assert watch.used_ratio() == pytest.approx(0.2)


def test_no_account_is_unknown_and_more_than_all_is_all(tmp_path: Path) -> None:
    assert Neighbours(tmp_path / "absent").used_ratio() is None
    (tmp_path / "odd").write_text("cpu words\n")
    assert Neighbours(tmp_path / "odd").used_ratio() is None
    stat, wall = tmp_path / "stat", iter([0.0, 1.0])
    account(stat)
    watch = Neighbours(stat, lambda: 0.0, lambda: next(wall))
    account(stat, user=1000)
    assert watch.used_ratio() == 1.0


def test_windows_are_taken_together_and_one_of_unknown_use_makes_all_unknown() -> None:
    """0.02 s of others in 0.4 s of processors, 0.01 s less than none by the ticks in 0.2 s: 0.01 of 0.6 s."""
    assert ratio_of([Used(0.02, 0.4), Used(-0.01, 0.2)]) == pytest.approx(0.01 / 0.6)
    assert ratio_of([Used(-0.01, 0.2)]) == 0.0
    assert ratio_of([Used(0.02, 0.4), Used(None, 0.0)]) is None
    assert ratio_of([]) is None


def test_a_warning_from_five_percent_on() -> None:
    assert warning(None) == warning(0.049) == ""
    assert warning(0.47) == "busy: others used 47% of the processors while this was timed"


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat")
def test_a_real_neighbour_is_seen() -> None:
    watch = Neighbours()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        time.sleep(1.5)
        seen = watch.used_ratio()
        spinning.kill()
    assert seen is not None
    assert seen > 0.3 / (os.cpu_count() or 1)
