"""CONTRIBUTING.md against the tree: every path and every identifier in backquotes is there."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLACEHOLDERS = ("NAME", "COUNTER", "KIND", "BUILD", "FILE", "DIR")


def quoted() -> list[str]:
    return re.findall(r"`([^`\n]+)`", TEXT)


PATHS = sorted({word for word in quoted() if re.fullmatch(r"[\w./]+(/|\.(py|md|csv|txt|toml))", word) and "/" in word})
NAMES = sorted({word for word in quoted() if re.fullmatch(r"_*[A-Za-z]\w*(\.\w+)*", word) and not word.isdigit()})
PLACED = re.findall(r"`([A-Z][\w]*)`[^`.;]{0,12}\(`([\w/]+\.py)`\)", TEXT)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_exists(path: str) -> None:
    for word in PLACEHOLDERS:
        path = re.sub(rf"\b{word}\b", "*", path)
    assert list(ROOT.glob(path.rstrip("/")))


@functools.cache
def words() -> frozenset[str]:
    """Everything that the code names: definitions, attributes, parameters, texts without a space."""
    files = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    found: set[str] = {part for file in files for part in (*Path(file).with_suffix("").parts, file)}
    for file in files:
        if (ROOT / file).is_file() and not file.startswith("tests/docs/"):
            found |= set(re.findall(r"\w+", (ROOT / file).read_text(encoding="utf-8")))
    return frozenset(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_of_the_code(name: str) -> None:
    parts = {part for part in name.split(".") if part not in PLACEHOLDERS}
    packages = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert parts <= words() | packages, name


@pytest.mark.parametrize(("name", "path"), PLACED)
def test_a_name_is_defined_where_it_is_said_to_be(name: str, path: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert name in defined
