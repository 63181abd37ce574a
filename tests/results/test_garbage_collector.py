"""What Python's cyclic collector is told around work that is done without it."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from results import collector_off

SAID = ("disable", "freeze", "unfreeze", "enable")


@pytest.mark.parametrize(
    ("keeps", "frozen", "expected"),
    [
        (False, 0, ["disable", "enable"]),
        (True, 0, ["disable", "freeze", "unfreeze", "enable"]),
        (True, 7, ["disable", "enable"]),  # what others have frozen stays so
    ],
)
def test_what_is_kept_is_old_afterwards(
    keeps: bool, frozen: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for name in SAID:
        monkeypatch.setattr(gc, name, lambda name=name: said.append(name))
    monkeypatch.setattr(gc, "isenabled", lambda: True)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    with collector_off(keeps=keeps):
        said.append("work")
    assert said == [expected[0], "work", *expected[1:]]


def test_the_collector_does_not_pass_over_it_again() -> None:
    """In a process in which nobody else has frozen anything."""
    code = (
        "import gc; from results.garbage_collector import collector_off\n"
        "with collector_off(keeps=True): made = [[] for _ in range(10)]\n"
        "gc.disable(); print(any(each is made for each in gc.get_objects(2)), gc.get_freeze_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True 0\n"
