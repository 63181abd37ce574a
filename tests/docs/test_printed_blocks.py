"""Printed text in the documents is what the commands print now: headings of tables, and whole blocks where no number
depends on the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.first_hour.page import PAGE, layout, tasks
from reports.sweep.table import to_text
from runners import trace
from runners.report import command as report_command
from tests.reports.compare.test_gate import slow, write
from tests.support.made_up import made_up_page

ROOT = Path(__file__).parents[2]
SHOWN = {task.number: layout(task.shown) for task in tasks(PAGE.read_text(encoding="utf-8"))}


def indented(document: str, first: str) -> list[str]:
    """The lines of an indented block that begins so."""
    lines = (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"    {first}"))
    end = next(number for number in range(at, len(lines)) if lines[number] and not lines[number].startswith("    "))
    return [line.strip() for line in lines[at:end] if line.strip()]


@pytest.mark.parametrize("number", [1, 2, 3, 10])
def test_the_table_of_a_sweep_in_the_first_hour(number: int) -> None:
    assert SHOWN[number]
    suite = made_up_page.suite(("resnet18", "vgg16"), (1, 64), ("fp32",))
    assert set(SHOWN[number]) <= set(layout(to_text(suite)))


def test_the_gates_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", slow(1.1))
    report_command.main([str(a), str(b), "--fail-if", "slower:2%,flop:0"])
    now = layout(capsys.readouterr().out)
    assert now
    assert set(SHOWN[5]) <= set(now)


def test_the_traces_tables(capsys: pytest.CaptureFixture[str]) -> None:
    trace.main([str(ROOT / "tests" / "data" / "kineto_torch215_stack.json.gz")])
    now = [line.replace("recompute ", "") for line in layout(capsys.readouterr().out)]
    assert SHOWN[8]
    assert set(SHOWN[8]) <= set(now)
