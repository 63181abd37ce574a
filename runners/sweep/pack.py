"""`--pack FILE`: a run as one archive, written anew while the run grows, for a machine that may be gone at any time.

The archive is the run's directory without pictures and pages, which `runners.report` draws again: unpacked, it is a run
that can be reported on, resumed and published. It is put in place at once, so that whoever copies it finds a whole one.
"""

import contextlib
import io
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from results.errors import StoreFault
from results.store.layout import OPERATIONS, PROFILES
from runners.cli.exits import Mistake
from runners.cli.output import put, reserve, say

EVERY_S = 60.0
"""A cell that ends this long after the last archive makes a new one."""

MOST_BYTES = 15 << 20
"""Of the archive."""

DRAWN = (".png", ".svg", ".html")
LEFT_OUT = "left_out.txt"
"""Names the files that the archive had no room for, one a line."""


class Pack:
    """The archive of one run directory. clock: monotonic seconds. most_bytes: more is left out, recordings first."""

    def __init__(
        self, run: Path, file: Path, clock: Callable[[], float] = time.monotonic, most_bytes: int = MOST_BYTES
    ) -> None:
        self._run, self._file, self._clock, self._most_bytes = run, file, clock, most_bytes
        self._written_s = clock()

    def after_cell(self) -> None:
        """Writes the archive if a minute has passed since the last one. Raises StoreFault."""
        if self._clock() - self._written_s >= EVERY_S:
            self.write()

    def write(self) -> None:
        """Writes the archive. Raises StoreFault."""
        files, left_out = _files(self._run), list[Path]()
        content = _archive(self._run, files, left_out)
        while (excess := len(content) - self._most_bytes) > 0:
            if not (dropped := _largest(self._run, files, excess)):
                raise StoreFault(f"--pack {self._file}: the tables alone have {len(content):,} bytes when packed")
            files, left_out = [file for file in files if file not in dropped], [*left_out, *dropped]
            content = _archive(self._run, files, left_out)
        put(self._file, content)
        if left_out:
            say(f"--pack: {self._file} has no room for {len(left_out)} files, which its {LEFT_OUT} names")
        self._written_s = self._clock()


@contextlib.contextmanager
def packing(run: Path, file: Path | None) -> Iterator[Pack | None]:
    """The archive to be kept of a run, None without a file: written once more at the end, whatever the end is."""
    if file is None:
        yield None
        return
    pack = Pack(run, file)
    try:
        yield pack
    finally:
        pack.write()


def check(file: Path | None) -> None:
    """Raises Mistake for a directory, StoreFault for what cannot be written."""
    if file is not None:
        if file.is_dir():
            raise Mistake(f"--pack: expected a file, such as {file / 'run.tar.gz'}, got a directory")
        reserve(file)


def _files(run: Path) -> list[Path]:
    """What the archive has, by its path in the run."""
    files = (file.relative_to(run) for file in sorted(run.rglob("*")) if file.is_file())
    return [file for file in files if file.suffix not in DRAWN and not file.name.startswith(".")]


def _largest(run: Path, files: Sequence[Path], excess: int) -> list[Path]:
    """The files to do without: the largest recordings, then the largest operation tables, of so many bytes."""
    folders = (PROFILES, OPERATIONS)
    optional = [file for file in files if file.parts[0] in folders]
    dropped = list[Path]()
    for file in sorted(optional, key=lambda file: (folders.index(file.parts[0]), -(run / file).stat().st_size)):
        if excess > 0:
            dropped.append(file)
            excess -= (run / file).stat().st_size
    return dropped


def _archive(run: Path, files: Sequence[Path], left_out: Sequence[Path]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=6) as archive:
        for file in files:
            archive.add(run / file, arcname=f"{run.name}/{file.as_posix()}")
        if left_out:
            names = "".join(f"{file.as_posix()}\n" for file in left_out).encode()
            entry = tarfile.TarInfo(f"{run.name}/{LEFT_OUT}")
            entry.size = len(names)
            archive.addfile(entry, io.BytesIO(names))
    return content.getvalue()
