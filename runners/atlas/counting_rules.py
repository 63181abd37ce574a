"""The digest of what decides a count: the source of the modules that trace a step and give it costs, and the versions
of the libraries that models are made of.

A cost that is kept names this digest, and is believed only where it is today's. Comments, docstrings and line breaks do
not count: the digest is of the parsed source. What is not in it: Python's own version, and a device, which no count
has.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the packages."""

DECIDING = (
    "analysis/devices/precisions.py", "analysis/operators", "analysis/profile", "analysis/reach", "measure/dispatch",
    "measure/fake", "measure/model", "measure/operations", "measure/profile", "results/records",
    "runners/atlas/costs.py", "runners/footprint/step.py", "runners/reach/step.py", "runners/workers/any_model.py",
    "runners/workers/batches.py", "workloads/catalogue", "workloads/sources", "workloads/text", "workloads/training",
)  # fmt: skip
"""Modules and folders whose code runs in a count and decides what it is. A test holds that no other code does."""

LIBRARIES = ("timm", "torch", "torchvision", "transformers")


@functools.cache
def rules_digest() -> str:
    """The digest of DECIDING and of the versions of LIBRARIES, 16 characters."""
    found = hashlib.sha256()
    for path in modules():
        found.update(f"{path.relative_to(ROOT).as_posix()}\n{parsed(path.read_text(encoding='utf-8'))}\n".encode())
    for name in LIBRARIES:
        found.update(f"{name} {_version(name)}\n".encode())
    return found.hexdigest()[:16]


def modules(places: Iterable[str] = DECIDING) -> Iterator[Path]:
    """The files of these modules and folders, in order."""
    for place in places:
        path = ROOT / place
        yield from [path] if path.suffix else sorted(path.rglob("*.py"))


def parsed(source: str) -> str:
    """A module's source as its syntax tree, without docstrings: the same for sources that do the same."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a text that stands alone, as docstrings do."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
