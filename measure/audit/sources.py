"""What is taken out of a package's files, and how: modules without their package's `__init__`, or functions alone.

Code of others is executed here, in the process of `child.py` only, which is confined.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def bare(folder: Path, *names: str) -> list[str]:
    """Packages whose `__init__` is not run; what to say of it."""
    for name in names:
        module = ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = module
    return [f"{name}/__init__.py not run" for name in names]


def empty(**modules: dict[str, Any]) -> list[str]:
    """Modules with the given names and nothing else (`__` for a dot); what to say of it."""
    for name, members in modules.items():
        module = ModuleType(name.replace("__", "."))
        vars(module).update(members)
        sys.modules[module.__name__] = module
    return [f"{name.replace('__', '.')} replaced" for name in modules]


def cut(path: Path, name: str, names: dict[str, Any], inside: str = "") -> Any:
    """One function of a module, or of a class in it, compiled from its source as it is, with the names that it
    uses."""
    body: list[Any] = ast.parse(path.read_text(encoding="utf-8")).body
    if inside:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == inside)
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return _executed(found, path, names)[name]


def cut_with_callees(path: Path, name: str, names: dict[str, Any]) -> Any:
    """One function of a module, with those of the same module that it calls, and those that they call. Raises
    ImportError where the module has none of this name."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    wanted, found = [name], dict[str, ast.stmt]()
    while wanted:
        each = wanted.pop()
        if each in functions and each not in found:
            found[each] = functions[each]
            wanted += [node.id for node in ast.walk(functions[each]) if isinstance(node, ast.Name)]
    if name not in found:
        raise ImportError(f"{path.name} has no function {name}")
    return _executed(list(found.values()), path, names)[name]


def _executed(functions: list[Any], path: Path, names: dict[str, Any]) -> dict[str, Any]:
    future = ast.parse("from __future__ import annotations").body
    code = compile(ast.Module(body=[*future, *functions], type_ignores=[]), str(path), "exec")
    space = dict(names)
    exec(code, space)
    return space
