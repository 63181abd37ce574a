"""Which test files are run against a fault, and in which order.

The file that mirrors the module, then what imports it in the mirrored folder, then what imports it elsewhere. Claims
nothing about tests that reach a module without naming it in an import or in text.
"""

import ast
import re
from functools import cache
from pathlib import Path

PACKAGES = ("results", "analysis", "cleaning", "measure", "workloads", "runners", "reports")


def module_file(tree: Path, name: str) -> str | None:
    """The file of a dotted name, of a module, a package or something in one."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return None
    for path in ("/".join(parts) + ".py", "/".join(parts[:-1]) + ".py", "/".join(parts) + "/__init__.py"):
        if (tree / path).is_file():
            return path
    return None


@cache
def imports_of(tree: Path, file: str) -> set[str]:
    """Product files that a file names in its imports, or in text like `package.module:function`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((tree / file).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"\w+(\.\w+)+(:|$)", node.value)
        ):
            names.add(node.value.partition(":")[0])
    return {path for name in names if (path := module_file(tree, name))}


def stages_for(module: str, importers: dict[str, set[str]]) -> list[list[str]]:
    """Test files of a module in three lists: its mirror, importers in the mirrored folder, all others.

    Files that import little come first. Without any of these, the files of the nearest folder. No list is empty.
    """
    folder, stem = f"tests/{Path(module).parent.as_posix()}/", Path(module).stem
    files = sorted((test for test, seen in importers.items() if module in seen), key=lambda test: len(importers[test]))
    mirrors = [test for test in importers if test.startswith(folder) and Path(test).stem == f"test_{stem}"]
    near = [test for test in files if test.startswith(folder) and test not in mirrors]
    others = [test for test in files if not test.startswith(folder)]
    while not (mirrors or near or others) and folder != "tests/":
        near = sorted(test for test in importers if test.startswith(folder))
        folder = f"{Path(folder).parent.as_posix()}/"
    return [stage for stage in (mirrors, near, others) if stage]
