"""Yields the events of a trace file one by one, from JSON of any size, plain or gzip, never whole in memory.

`events` takes a path and a dict, into which it puts the header. A trace is a list of events, or an object whose
"traceEvents" is such a list. The header is everything else in the object. Times are µs with up to three digits after
the point, more than a double can hold for a present date. So numbers with a point stay text here, and `to_ns` reads
both forms. Bytes that are not UTF-8 become "�", and control characters in strings are accepted, since kernels' names
contain both. Not claimed: that the file is a trace of a profiler.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from results.text_files import BoundedStream, beyond, check_regular, limit

CHUNK = 1 << 20
"""Characters read at a time."""

HOW_TO_RECORD = (
    "record again: torch.profiler.profile(record_shapes=True, with_stack=True) around whole steps, "
    "then export_chrome_trace('trace.json.gz')"
)

MORE = "flopledger.more"
"""Key of the header: whether the file has something after the end of the JSON document."""

_NO_NUMBER = re.compile(r"(?<=:)\s*-?(?:inf|nan)(?=\s*[,}\]])")
"""A value inf or nan, which Kineto writes although it is not JSON."""

_EVENT = 1 << 16
"""Characters of an event that are searched for inf and nan."""

_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_SCAN: Any = json.JSONDecoder(strict=False, parse_float=str).scan_once  # type: ignore[attr-defined]


def events(path: str | Path, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every event in the file's order. `header` gets everything else in the document, before and after them.

    Raises ValueError, one line, for a file that is not JSON, has no events, or ends too early.
    """
    with open_text(path, HOW_TO_RECORD) as file:
        yield from _document(_Window(file, str(path)), header)


def to_ns(microseconds: int | str | None) -> int:
    """Return whole nanoseconds of a time as `events` yields it; -1 if there is none."""
    if not isinstance(microseconds, str):
        return microseconds * 1000 if type(microseconds) is int else -1
    if microseconds[-4:-3] == "." and (digits := microseconds[:-4] + microseconds[-3:]).isdigit():
        return int(digits)
    has_exponent = "e" in microseconds.lower()
    return round(float(microseconds) * 1000) if has_exponent else int(Decimal(microseconds) * 1000)


@contextmanager
def open_text(path: str | Path, how: str, newline: str | None = None) -> Iterator[IO[str]]:
    """Open a text file, plain or gzip. Raises ValueError, one line, for a file that cannot be opened, or that cannot be
    unpacked to its end. how: says in the latter message how to make the file again."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    data = BoundedStream(gzip.GzipFile(path), str(path)) if zipped else io.FileIO(path)
    whole = io.BufferedReader(data, CHUNK)
    with io.TextIOWrapper(whole, encoding="utf-8-sig", errors="replace", newline=newline) as text:
        try:
            yield text
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: the gzip data are cut or damaged ({error}); {how}") from error


class _Window:
    """The part of a text file that is being read; `position` is the next character in it."""

    def __init__(self, file: IO[str], name: str) -> None:
        self.file, self.name, self.text, self.position = file, name, "", 0

    def more(self) -> bool:
        """Read on, and return False at the end of the file. The unfinished text doubles each time, so that a large
        value is scanned only a few times. Raises ValueError for a value that is larger than its limit."""
        waiting = len(self.text) - self.position
        if waiting > limit("event_bytes"):
            raise ValueError(beyond(f"{self.name}: a value of the trace is {waiting} characters", "event_bytes"))
        chunk = self.file.read(max(CHUNK, waiting))
        self.text, self.position = self.text[self.position :] + chunk, 0
        return bool(chunk)

    def peek(self) -> str:
        """Return the next character that is not a space."""
        while True:
            self.position = _SPACE.match(self.text, self.position).end()  # type: ignore[union-attr]
            if self.position < len(self.text):
                return self.text[self.position]
            if not self.more():
                raise self.broken()

    def value(self) -> Any:
        """Return the next value of any kind. A value that ends where the window does is read again with more text,
        since a number could go on."""
        while True:
            self.peek()
            try:
                value, end = _SCAN(self.text, self.position)
            except (StopIteration, json.JSONDecodeError):
                end = len(self.text)
            if end < len(self.text):
                self.position = end
                return value
            if not self.more():
                raise self.broken()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of the list that begins here."""
        self.position += 1
        scan, between = _SCAN, _BETWEEN.match
        while True:
            text, position = self.text, self.position
            try:
                while True:
                    position = between(text, position).end()  # type: ignore[union-attr]
                    event, position = scan(text, position)
                    if type(event) is dict:
                        yield event
            except (StopIteration, json.JSONDecodeError):
                self.position = position
            if text[position : position + 1] == "]":
                self.position = position + 1
                return
            event_text = text[position : position + _EVENT]
            repaired = _NO_NUMBER.sub("null", event_text)  # `inf` and `nan`, as Kineto writes them
            if repaired != event_text:
                self.text, self.position = repaired + text[position + _EVENT :], 0
            elif not self.more():
                raise self.broken()

    def broken(self) -> ValueError:
        rest = self.text[self.position : self.position + 40]
        return ValueError(
            f"{self.name}: the trace is empty, ends in the middle or is not JSON at {rest!r}; {HOW_TO_RECORD}"
        )


def _document(window: _Window, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a file, and put everything else in it into `header`."""
    first = window.peek()
    if first == "[":
        yield from window.events()
    elif first == "{":
        window.position += 1
        has_events = False
        while (character := window.peek()) != "}":
            if character == ",":
                window.position += 1
                continue
            key = window.value()
            if window.peek() != ":":
                raise window.broken()
            window.position += 1
            if key == "traceEvents" and window.peek() == "[":
                has_events = True
                yield from window.events()
            else:
                header[str(key)] = window.value()
        if not has_events:
            raise ValueError(f"{window.name}: no traceEvents, so no trace of torch.profiler; {HOW_TO_RECORD}")
        window.position += 1
    else:
        raise ValueError(f"{window.name}: expected a trace (JSON), it begins with {first!r}")
    while not (rest := window.text[window.position :].strip()) and window.more():
        pass
    header[MORE] = bool(rest)
