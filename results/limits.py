"""How large what others made may be: a limit for each kind of input, checked before memory is taken for it.

The variable `FLOPLEDGER_LIMITS` raises or lowers them for every command and for what it starts:
`FLOPLEDGER_LIMITS=database_seconds=1200,unpacked_bytes=64e9`. SECURITY.md has the same table (a test holds them
together). Not claimed: that everything within the limits is quick on every machine.
"""

import difflib
import gzip
import io
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

VARIABLE = "FLOPLEDGER_LIMITS"


@dataclass(frozen=True)
class Limit:
    """A default, and what it is of."""

    default: int
    of: str


LIMITS: Mapping[str, Limit] = {
    "config_layers": Limit(20_000, "layers, blocks or experts that a configuration of transformers asks for"),
    "config_modules": Limit(1_000_000, "the product of these numbers"),
    "config_bytes": Limit(16 * 2**20, "size of a configuration of transformers"),
    "unpacked_bytes": Limit(16 * 2**30, "what a gzip file holds that is read piece by piece: traces, PyProf"),
    "memory_bytes": Limit(4 * 2**30, "what a gzip file holds that is read as a whole: kept tables, exports of nsys"),
    "line_bytes": Limit(2**20, "a line of PyProf's dictionaries"),
    "event_bytes": Limit(2**26, "a value in a trace: an event, or an entry of its header"),
    "database_seconds": Limit(600, "reading an export of Nsight Systems"),
    "formula_bits": Limit(20_000, "binary digits of a number in a formula"),
}  # fmt: skip
"""Name → limit. Names end in their unit."""


def limit(name: str) -> int:
    """The limit of this name that holds here. Raises ValueError as `stated` does."""
    return stated().get(name, LIMITS[name].default)


def stated(text: str | None = None) -> dict[str, int]:
    """The limits that `FLOPLEDGER_LIMITS` names. Raises ValueError for a name that is none, or no positive number."""
    found = {}
    for part in (os.environ.get(VARIABLE, "") if text is None else text).split(","):
        if not part.strip():
            continue
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in LIMITS:
            near = difflib.get_close_matches(name, LIMITS, n=1)
            hint = f", nearest {near[0]}" if near else ""
            raise ValueError(f"{VARIABLE}: expected NAME=N of {', '.join(LIMITS)}, got {part.strip()!r}{hint}")
        found[name] = _number(name, value)
    return found


def _number(name: str, text: str) -> int:
    try:
        value = int(float(text))
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise ValueError(f"{VARIABLE}: expected a positive number for {name}, got {text!r}")
    return value


def beyond(what: str, name: str) -> str:
    """The words for something that is larger than its limit: what is, which limit, how it is raised."""
    return f"{what}: more than {limit(name)} ({LIMITS[name].of}); {VARIABLE}={name}=N raises the limit"


def check_regular(path: Path | str) -> None:
    """Raises ValueError for what is there and is no regular file: a pipe would be waited for, a device has no end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # whoever opens it says why
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} is no regular file")


def unpack(data: bytes, name: str = "memory_bytes") -> bytes:
    """What gzip packed. Raises ValueError where it is more than the limit of this name, before the rest is unpacked;
    OSError, EOFError or zlib.error, as gzip does, where it is damaged or cut."""
    most, parts = limit(name), io.BytesIO()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        while piece := packed.read(_PIECE):
            if parts.tell() + len(piece) > most:
                raise ValueError(beyond("unpacked", name))
            parts.write(piece)
    return parts.getvalue()


_PIECE = 1 << 20


class BoundedStream(io.RawIOBase):
    """A binary stream of at most so many bytes: beyond the limit of this name a read raises ValueError."""

    def __init__(self, stream: IO[bytes] | Any, path: str, name: str = "unpacked_bytes") -> None:
        self._stream, self._path, self._name = stream, path, name
        self._left = limit(name)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._left = limit(self._name)
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(beyond(f"{self._path}: unpacked", self._name))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
