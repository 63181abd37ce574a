"""A profiled step on a terminal: no line is longer than it has letters, and what is left out is the least asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.profile.terminal import terminal_text
from results.records.step_profile import StepModule
from tests.support.made_up.made_up_profile import MACHINE, MODULES, profile

LONG = StepModule(
    module="body.2", type="AModuleOfAVeryLongNameIndeed" * 3, settings="[red]1[/red], kernel_size=(3, 3)" * 9
)


def plain(width: int, **more: object) -> str:
    return terminal_text(profile(modules=(*MODULES[:4], LONG, MODULES[4])), width=width, colour=False, **more)  # type: ignore[arg-type]


def line(text: str, part: str) -> str:
    (found,) = [each for each in text.splitlines() if part in each]
    return " ".join(found.split())


@pytest.mark.parametrize("width", [60, 80, 100, 130, 160])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    text = plain(width, operations=True)
    assert max(map(len, text.splitlines())) <= width
    assert "…" in text


def test_nothing_is_cut_out_of_a_number() -> None:
    """A machine of which the step uses hardly anything, and shares below a hundredth."""
    fast = replace(MACHINE, peak_by_unit={"fp32": 4e10})
    text = terminal_text(profile(machine=fast), width=100, colour=False)
    rows = [each for each in text.split("The largest")[0].splitlines() if "Conv2d" in each or "BatchNorm2d" in each]
    assert len(rows) == 2
    assert not [each for each in rows if "…" in each]
    assert "<0.001" in rows[0]  # 24000 / 4e10 in 13.5 ms
    small = terminal_text(profile(machine=replace(MACHINE, peak_by_unit={"fp32": 9e8})), width=100, colour=False)
    assert " 0.0020 " in line(small, "│ ├ 0: Conv2d")  # 24000 / 9e8 = 26.7 µs of 13.5 ms


def test_options_reach_it() -> None:
    assert "Conv2d" not in plain(100, depth=1).split("The largest")[0]
    assert "├" not in plain(100, detailed=False)
    assert "longest of" not in plain(100)
    assert line(plain(100, operations=True), "convolution_backward") == (
        "convolution_backward backward 2×8×8×8, 2×3×8×8 1 8.00 ms 29 % arithmetic"
    )


def test_names_are_no_markup() -> None:
    assert "[red]1[/red]" in plain(160)
