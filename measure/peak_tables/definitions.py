"""Takes named definitions out of a package's file and runs those alone, with what they need put in by name.

The package is not imported: its dependencies are not needed, and nothing else of it runs. Not claimed: that a
definition which asks the machine (a device's properties) can be answered here; such a question raises.
"""

from __future__ import annotations
import __future__

import ast
import importlib.metadata
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure.peak_tables.sources import PeakTable
from results import Unavailable


@dataclass(frozen=True)
class SourceText:
    """A file of a package. version: of the distribution, or the commit that a checkout's `VERSION` file names."""

    text: str
    version: str


def source_text(table: PeakTable, folder: Path) -> SourceText:
    """From a wheel or a checkout in the folder, else from what is installed. Raises Unavailable with the reason."""
    if table.is_checkout:
        return _of_checkout(table, folder / table.distribution)
    for wheel in sorted(folder.glob(f"{_wheel_name(table.distribution)}-*.whl"), reverse=True):
        with zipfile.ZipFile(wheel) as file:
            if table.file in file.namelist():
                return SourceText(file.read(table.file).decode(), wheel.name.split("-")[1])
        raise Unavailable(f"{wheel.name} has no {table.file}")
    return _of_installation(table)


def _wheel_name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "_", distribution)


def _of_checkout(table: PeakTable, checkout: Path) -> SourceText:
    try:
        text = (checkout / table.file).read_text(encoding="utf-8")
        version = (checkout / "VERSION").read_text(encoding="utf-8").strip()
    except OSError as fault:
        raise Unavailable(f"no package: expected a checkout with a VERSION file at {checkout}") from fault
    return SourceText(text, version)


def _of_installation(table: PeakTable) -> SourceText:
    try:
        found = importlib.metadata.distribution(table.distribution)
    except importlib.metadata.PackageNotFoundError as fault:
        raise Unavailable(f"{table.distribution} is neither installed nor in the folder of packages") from fault
    path = Path(str(found.locate_file(table.file)))
    if not path.is_file():
        raise Unavailable(f"{table.distribution} {found.version} has no {table.file}")
    return SourceText(path.read_text(encoding="utf-8"), found.version)


def definitions(text: str, names: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The namespace after the named top-level definitions ran, in the file's order.

    given: what they refer to. Raises Unavailable for a name that the file lacks.
    """
    taken = _taken(text, names)
    namespace: dict[str, Any] = dict(given)
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module(body=taken, type_ignores=[]), "<package>", "exec", flags=flags, dont_inherit=True)
    exec(code, namespace)
    return namespace


def check(text: str, names: tuple[str, ...]) -> None:
    """Raises Unavailable for a name that the file lacks. Runs nothing."""
    _taken(text, names)


def _taken(text: str, names: tuple[str, ...]) -> list[ast.stmt]:
    taken = [node for node in ast.parse(text).body if set(_names(node)) & set(names)]
    missing = set(names) - {name for node in taken for name in _names(node)}
    if missing:
        raise Unavailable(f"the file defines no {', '.join(sorted(missing))}")
    return taken


def _names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
