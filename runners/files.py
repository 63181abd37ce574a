"""Files that a command derives: each is replaced at once or not at all. Nothing of a run's raw rows is written here."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from results import disk
from results.errors import StoreFault


@contextlib.contextmanager
def writing(path: Path, beside: str = "") -> Iterator[None]:
    """Turns what the system says meanwhile into a StoreFault. beside: what there is to say of other files."""
    try:
        yield
    except OSError as fault:
        raise StoreFault(f"{path} could not be written: {fault.strerror or fault}{beside}") from fault


def reserve(path: Path) -> None:
    """Make sure, before it is worth anything, that a file can be put here. Raises StoreFault."""
    with writing(path):
        disk.make_directory(disk.DISK, path.parent)
        tempfile.TemporaryFile(dir=path.parent).close()


def put(path: Path, content: str | bytes, beside: str = "") -> None:
    """One file, and the directories above it; an equal one is left alone. Raises StoreFault."""
    data = content.encode() if isinstance(content, str) else content
    with writing(path, beside):
        disk.make_directory(disk.DISK, path.parent)
        if not (path.is_file() and path.read_bytes() == data):
            disk.replace(disk.DISK, path, data)
