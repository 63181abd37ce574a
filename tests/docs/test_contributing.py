"""CONTRIBUTING.md against the tree: every path and every identifier in backquotes is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLACEHOLDERS = ("NAME", "COUNTER", "KIND", "BUILD", "FILE", "DIR")


def quoted() -> list[str]:
    return re.findall(r"`([^`\n]+)`", TEXT)


PATHS = sorted({word for word in quoted() if re.fullmatch(r"[\w./]+(/|\.(py|md|csv|txt|toml))", word) and "/" in word})
PLACED = re.findall(r"`([A-Z][\w]*)`[^`.;]{0,12}\(`([\w/]+\.py)`\)", TEXT)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_exists(path: str) -> None:
    for word in PLACEHOLDERS:
        path = re.sub(rf"\b{word}\b", "*", path)
    assert list(ROOT.glob(path.rstrip("/")))


@pytest.mark.parametrize(("name", "path"), PLACED)
def test_a_name_is_defined_where_it_is_said_to_be(name: str, path: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert name in defined
