"""Law: the table of faults in docs/evidence.md has a fault for each boundary, and each test that it names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ([a-z ]+) \| .+ \| `(tests/[^:`]+)::(test_\w+)` \|$", re.MULTILINE)

BOUNDARIES = {"disk", "standard streams", "telemetry", "counter", "worker", "device", "clock"}


def rows() -> list[tuple[str, str, str]]:
    """(boundary, file, test) of each row."""
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    return ROW.findall(text.partition("## Faults at each boundary")[2].partition("\n## ")[0])


def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_boundary_has_a_fault_and_each_row_is_read() -> None:
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    section = text.partition("## Faults at each boundary")[2].partition("\n## ")[0]
    assert {boundary for boundary, _, _ in rows()} == BOUNDARIES
    assert len(rows()) == section.count("\n| ") - 2  # without the head and the line below it


def test_each_test_that_is_named_exists() -> None:
    assert [(file, name) for _, file, name in rows() if name not in functions_of(file)] == []
