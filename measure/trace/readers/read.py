"""The recording in a file, whichever profiler wrote it: the format is found by content, not by the file's name.

Not claimed: that a file is whole because its beginning is known; each reader checks its own.
"""

import zlib
from pathlib import Path

from measure.trace.attribution.recording import Recording
from measure.trace.readers import kineto, nsys, pyprof
from results.limits import check_regular

READERS = {"kineto": kineto.read, "nsys": nsys.read, "pyprof": pyprof.read}

FORMATS = "a Kineto trace (.json, .json.gz), an Nsight Systems export (.sqlite) or PyProf's output (CSV or dict)"

NSIGHT = (".nsys-rep", ".qdrep")
"""How files end that only Nsight Systems itself can read."""

MALFORMED = (TypeError, AttributeError, ArithmeticError, LookupError, RecursionError)
"""What readers meet in a file whose parts are of other types than its recorder gives them."""

_LOOK = 1 << 16


def read(path: str | Path) -> Recording:
    """The recording, not yet attributed. Raises ValueError, one line, for what is no recording or not a whole one."""
    try:
        return READERS[detect(path)](path)
    except MALFORMED as fault:
        words = " ".join(f"{type(fault).__name__}: {fault}".split())
        message = f"{path}: expected what its recorder writes, got a part that is missing or of another type or range"
        raise ValueError(f"{message} ({words})") from fault


def detect(path: str | Path) -> str:
    """Which reader a file is for, a key of READERS. Raises ValueError for none."""
    begin = _begin(path)
    if begin.startswith(nsys.MAGIC):
        return "nsys"
    text = begin.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        raise ValueError(f"{path}: the file is empty; expected {FORMATS}")
    if text[:1] in b"{[":
        return "pyprof" if text[1:].lstrip()[:1] == b"'" else "kineto"
    if b"," in text.splitlines()[0] and b"\x00" not in text:
        return "pyprof"
    if Path(path).suffix in NSIGHT:
        raise ValueError(f"{path}: the profiler's own file, not its export; {nsys.HOW_TO_RECORD}")
    raise ValueError(f"{path}: expected {FORMATS}, it begins with {text[:20]!r}")


def _begin(path: str | Path) -> bytes:
    try:
        check_regular(path)
        with open(path, "rb") as file:
            begin = file.read(_LOOK)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}; expected {FORMATS}") from error
    if begin[:2] != nsys.GZIP:
        return begin
    unzip = zlib.decompressobj(wbits=31)
    try:
        text = unzip.decompress(begin, _LOOK)
    except zlib.error:
        return b"{"  # its reader says what is damaged
    return text if text or unzip.eof else b"{"
