"""A profiled step on a terminal: no line is longer than it has letters, and what is left out is the least asked for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from analysis.profile.module_tree import tree
from reports.profile.terminal import COLUMNS, fitting_columns, guided, terminal_text
from results.records.step_profile import StepModule
from tests.support.made_up.made_up_profile import MACHINE, MODULES, MS, OPERATIONS, PROFILE, profile, untimed

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


def test_a_hundred_letters_hold_what_the_issue_names() -> None:
    """body: 80 of 100 parameters, 24 of 30 kFLOP, 7 of 8.5 ms forward, 14 of 16 backward, 24000 in 21 ms, 6 of 22.5."""
    text = plain(100)
    assert line(text, "├ body: Sequential") == (
        "├ body: Sequential 80.0 80% 24.0 k 80% 7.00 ms 82% 14.0 ms 88% 1.07 M 0.27 arithmetic"
    )
    assert "4.00 k" in line(plain(160), "body: Sequential")  # its multiply-adds
    assert "3, 8, kernel_size=(3, 3)" in plain(160)


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


def test_columns_are_left_out_by_their_rank() -> None:
    names = [column.name for column in COLUMNS]
    assert [column.name for column in fitting_columns(400)] == names
    assert [column.name for column in fitting_columns(100)] == [n for n in names if n not in ("MAC", "settings")]
    assert [column.name for column in fitting_columns(80)] == ["FLOP", "forward", "backward", "used", "bound"]
    assert fitting_columns(10) == []


def test_modules_are_joined_by_lines() -> None:
    """body has two parts, of which the second is the last; head is the root's last."""
    drawn = [f"{guide}{node.type}" for guide, node in guided(tree(PROFILE))]
    assert drawn == ["Net", "├ Sequential", "│ ├ Conv2d", "│ └ BatchNorm2d", "└ Linear"]
    assert [node.module for _, node in guided(tree(PROFILE), 1)] == ["", "body", "head"]


def test_the_end_is_the_verdict_and_what_to_change() -> None:
    *_, last = plain(100).split("parameters of the tree")
    assert "net uses 30 % of what this device can calculate" in last
    assert "to change: " in last


def test_options_reach_it() -> None:
    assert "Conv2d" not in plain(100, depth=1).split("The largest")[0]
    assert "├" not in plain(100, detailed=False)
    assert "longest of" not in plain(100)
    assert line(plain(100, operations=True), "convolution_backward") == (
        "convolution_backward backward 2×8×8×8, 2×3×8×8 1 8.00 ms 29 % arithmetic"
    )


def test_names_are_no_markup() -> None:
    assert "[red]1[/red]" in plain(160)


def test_colours_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """arithmetic is #0173b2. What takes less than a hundredth is dim: here the head's 0.2 of 26 ms."""
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    short = [replace(each, time_s=0.1 * MS) if each.module == "head" else each for each in OPERATIONS]
    text = terminal_text(profile(operations=tuple(short)))
    assert "\x1b[38;2;1;115;178marithmetic" in text
    (head,), (body,) = ([each for each in text.splitlines() if name in each] for name in ("head: Linear", "body: Seq"))
    assert re.search(r"\x1b\[2m *20\.0  20%", head)
    assert body.startswith("├ body: Sequential ")
    assert "\x1b" not in terminal_text(PROFILE, colour=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "38;2" not in terminal_text(PROFILE)


def test_untimed_is_told() -> None:
    text = terminal_text(untimed(), colour=False)
    assert "its utilization is not known here (no peak of fp32)" in text
    assert max(map(len, text.splitlines())) <= 100
