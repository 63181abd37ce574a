"""Law: each test, command, option and function that docs/systems.md names exists; files are parsed, not imported."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^.+ \| `([^`]+)` \| `([^`]+)`$", PAGE, re.MULTILINE)


def defined(name: str, node: ast.AST) -> list[ast.AST]:
    """Nodes in this one that give the name: a definition, an import or an assignment."""
    written = (inner for inner in ast.walk(node) if not isinstance(getattr(inner, "ctx", None), ast.Load))
    return [inner for inner in written if name == getattr(inner, "name", getattr(inner, "id", None))]


def has(file: Path, *names: str) -> bool:
    """Whether a file has the first of the names, what that names has the second, and so on."""
    nodes: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))] if file.is_file() else []
    for name in names:
        nodes = [inner for node in nodes for inner in defined(name, node)]
    return bool(nodes)


def is_there(where: str) -> bool:
    """Whether a command has its options, or a module its name."""
    first, *options = where.split()
    if "." in first:
        *folders, name = first.split(".")
        module = ROOT.joinpath(*folders)
        return has(module.with_suffix(".py"), name) or has(module / "__init__.py", name)
    files = [*(ROOT / "runners").glob(f"{first}*.py"), *(ROOT / "runners" / first).rglob("*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    shared = (ROOT / "runners" / "cli" / "model_options.py").read_text(encoding="utf-8")
    return bool(files) and all(
        f'"{option}"' in text or all(f'"{option.removeprefix("--")}"' in source for source in (shared, text))
        for option in options
    )


def test_everything_that_is_named_is_there() -> None:
    assert len(ROWS) == PAGE.count("::test_") > 100, "a row is: feature | `where` | `test`"
    assert [where for where, _ in ROWS if not is_there(where)] == []
    assert [test for _, test in ROWS if not has(ROOT / test.partition("::")[0], *test.split("::")[1:])] == []
