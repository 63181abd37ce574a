"""Packages that look a name up in its module each time, so that a test can replace it there.

`lazy_loader` keeps what a package's `__init__` looked up once: a name that a test replaces in its module would be the
old one for those who import it from the package, or the test's own for all tests after it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import lazy_loader

_attach: Callable[..., Any] = lazy_loader.attach


def attach(package: str, *parts: Any, **more: Any) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`lazy_loader.attach`, which keeps nothing."""
    look_up, names, exported = _attach(package, *parts, **more)

    def look_up_each_time(name: str) -> Any:
        value = look_up(name)
        sys.modules[package].__dict__.pop(name, None)
        return value

    return look_up_each_time, names, exported


def install() -> None:
    """Before any package of the project is imported."""
    lazy_loader.attach = attach
