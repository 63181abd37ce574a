"""Where `--data cifar10:DIR` points, checked without torch before anything is measured.

It sees that the files are there. Whether they hold what they should, torchvision checks by their checksums when they
are read.
"""

from __future__ import annotations

from pathlib import Path

CLASSES = 10
FOLDER = "cifar-10-batches-py"
FILES = (
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
    "batches.meta",
)
"""What the published archive cifar-10-python.tar.gz unpacks to."""

_PREFIX = "cifar10:"


def directory_of(data: str) -> Path | None:
    """The directory of `--data cifar10:DIR`; None for synthetic data.

    Raises ValueError, one line, for another word or a directory without the files.
    """
    if data == "synthetic":
        return None
    if not data.startswith(_PREFIX) or data == _PREFIX:
        raise ValueError(f"--data: expected synthetic or cifar10:DIR, got {data!r}")
    directory = Path(data.removeprefix(_PREFIX))
    check(directory, FILES)
    return directory


def check(directory: Path, files: tuple[str, ...]) -> None:
    """Raises ValueError, one line, unless directory/cifar-10-batches-py holds these files."""
    folder = directory / FOLDER
    try:
        missing = [name for name in files if not (folder / name).is_file()]
    except OSError as fault:
        raise ValueError(f"--data cifar10:{directory}: cannot read {folder}: {fault.strerror}") from fault
    if missing:
        raise ValueError(f"--data cifar10:{directory}: expected {folder}/ with {', '.join(files)}; no {missing[0]}")
