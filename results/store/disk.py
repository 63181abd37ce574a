"""Writes files so that each holds whole lines, or does not exist: `append`, atomic `replace`, one `lock`.

`append` and `replace` take a `Disk`, a path and bytes. `Disk` is every system call that changes a run directory; a test
passes one that fails or dies at a chosen call. A partial line remains only after a kill or a failed write, and the next
append cuts it off. Whether a line counts is not decided here.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from results.errors import StoreFault
from results.text_files import check_regular

_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
_UNWRITABLE |= {errno.ELOOP, errno.ENAMETOOLONG}
_NO_DIRECTORY_SYNC = {errno.EINVAL, errno.ENOTSUP}


class Disk:
    """The system calls that change a file or directory, as `os` has them."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags, 0o666)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)


DISK = Disk()


def append(disk: Disk, path: Path, head: bytes, block: bytes) -> None:
    """Add whole lines to a file: one write, one fsync. An empty or new file gets `head` first, in the same write.

    A torn last line is cut off first. If the write fails the file is cut back to what it held. Raises OSError.
    """
    fd = disk.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        end = _cut_torn_line(disk, fd)
        if end == 0:
            sync_directory(disk, path.parent)
            block = head + block
        try:
            _write_all(disk, fd, block)
            disk.fsync(fd)
        except OSError:
            # If this fails too, the next append cuts the torn line; whole rows left here are never committed.
            with contextlib.suppress(OSError):
                disk.truncate(fd, end)
            raise
    finally:
        disk.close(fd)


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Replace the file at `path` by `data` atomically: a reader finds the old file or the new one, whole. Raises
    OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            _write_all(disk, fd, data)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        disk.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # a leftover is overwritten the next time
            disk.unlink(temporary)
        raise
    sync_directory(disk, path.parent)


def read(path: Path) -> bytes | None:
    """Return a file's bytes; None if there is no such file. Raises ValueError if it cannot be read, or is a pipe or a
    device, which may have no end."""
    check_regular(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise ValueError(f"{path} cannot be read: {fault.strerror}") from fault


def make_directory(disk: Disk, path: Path) -> None:
    """Make a directory and its parents; an existing one is kept. Raises OSError."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(disk, path.parent)
    with contextlib.suppress(FileExistsError):
        disk.mkdir(path)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    sync_directory(disk, path.parent)


def sync_directory(disk: Disk, path: Path) -> None:
    """Make the names in a directory durable, where the file system can. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        disk.fsync(fd)
    except OSError as fault:
        if fault.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        disk.close(fd)


def lock(disk: Disk, path: Path) -> int:
    """Return the descriptor of a lock file, held exclusively until it is closed or the process ends.

    A child made by a bare fork would hold it too; one that executes a program, as workers do, does not inherit it.
    Raises ValueError naming the process that holds it, OSError as the system gives it.
    """
    import fcntl  # not on Windows, where runs can be read

    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        disk.truncate(fd, 0)
        disk.write(fd, f"pid {os.getpid()} on {socket.gethostname()}".encode())
    except BlockingIOError as fault:
        holder = os.pread(fd, 200, 0).decode(errors="replace") or "another process"
        disk.close(fd)
        raise ValueError(f"{path.parent} is being written by another sweep ({holder})") from fault
    except OSError:
        disk.close(fd)
        raise
    return fd


@contextlib.contextmanager
def faults(path: Path, opening: bool = False) -> Iterator[None]:
    """Turn the system's errors while writing `path` into StoreFault.

    opening: whether a run is being opened, where a directory that cannot be written is a ValueError.
    """
    try:
        yield
    except OSError as fault:
        if opening and fault.errno in _UNWRITABLE:
            raise ValueError(f"expected a directory that can be written, got {path}: {fault.strerror}") from fault
        why = fault.strerror or fault
        raise StoreFault(f"{path} could not be written: {why}; whole rows are kept, --resume goes on") from fault


def _write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write in one call; in further calls only if the system wrote less, so that it reports why."""
    rest = memoryview(data)
    while rest:
        written = disk.write(fd, rest)
        if written == 0:
            raise OSError(errno.EIO, "a write took nothing")
        rest = rest[written:]


def _cut_torn_line(disk: Disk, fd: int) -> int:
    """Return the size of a file in bytes, after cutting what follows its last newline."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return size
    with open(os.dup(fd), "rb") as file:  # a killed writer left it
        file.seek(0)
        end = file.read().rfind(b"\n") + 1
    disk.truncate(fd, end)
    return end


def check_links(path: Path) -> None:
    """Raise ValueError for a link in a run directory, through which a file elsewhere would be read, cut or replaced."""
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            file = Path(folder, name)
            if file.is_symlink():
                link = f"{file.relative_to(path)}, which leads to {os.readlink(file)}"
                raise ValueError(f"{path}: expected a run without links, got {link}: remove it, or copy what it names")
