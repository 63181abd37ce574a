"""docs/comparison.md against itself, the README and the pins: each cell is said once, and has its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.devices.peaks import all_devices
from measure.trace.readers.read import READERS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
TOOLS = ("flopledger", "DeepSpeed", "fvcore", "ptflops", "torchtitan", "Lightning", "timm", "zeus", "HTA")


def cells(text: str, header: str) -> dict[str, list[str]]:
    """The cells of each row of the table below this header, by the row's first cell."""
    _, found, rest = text.partition(f"\n{header}\n")
    assert found, header
    table = [line.strip("|").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[1:]]
    rows = [[cell.strip() for cell in line] for line in table]
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1:] for row in rows}


HEADER = f"| | {' | '.join(TOOLS)} |"
TABLE = cells(PAGE, HEADER)
SOURCES = cells(PAGE, "| | what | version or commit |")


def evidence(tool: str) -> dict[str, list[str]]:
    """Question → answer and place, of one program's section."""
    section = PAGE.partition(f"\n### {tool}\n")[2].partition("\n### ")[0]
    return cells(section, "| question | answer | where |")


def test_the_readme_shows_rows_of_the_page() -> None:
    shown = cells(README, HEADER)
    assert shown == {question: TABLE.get(question) for question in shown}
    assert 8 <= len(shown) < len(TABLE)


@pytest.mark.parametrize("tool", TOOLS[1:])
def test_each_cell_has_its_evidence_but_a_no(tool: str) -> None:
    answers = {question: row[TOOLS.index(tool)] for question, row in TABLE.items()}
    shown = evidence(tool)
    assert {question: row[0] for question, row in shown.items()} == {name: answers[name] for name in shown}
    assert {answers[question] for question in answers if question not in shown} <= {"no", "–"}
    assert all(len(row) == 2 and row[1] for row in shown.values())


@pytest.mark.parametrize("package", ["deepspeed", "fvcore", "ptflops", "timm"])
def test_pinned_versions_are_those_that_were_read(package: str) -> None:
    """Where a pin is moved: read the cells again, then change the page."""
    row = next(row for name, row in SOURCES.items() if package in name.lower())
    (pinned,) = re.findall(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned in row[1]


def test_what_it_says_of_ours_is_so() -> None:
    ours = {question: row[0] for question, row in TABLE.items()}
    assert ours["its peak"] == f"{len(all_devices())} devices, by unit"
    assert ours["reads recordings"] == f"{len(READERS)} formats"
