"""A recording that some profiler wrote, read and attributed, or one line that says why it cannot be.

What commands and workers share: nothing is cleaned and nothing is printed here.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from runners.cli.exits import Mistake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measure.trace.attribution.recording import Recording

LAUNCHES = (b'"cudaLaunchKernel', b'"cuLaunchKernel', b'"hipLaunchKernel', b'"hipExtModuleLaunchKernel"')
"""In a Kineto trace: the name of a call that launches a kernel, or its beginning."""

WITH_KERNELS = {
    "kineto": "record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    "nsys": "record again with nsys profile --trace=cuda,nvtx",
}
"""Source → how to record one with its kernels."""

MALFORMED = (TypeError, AttributeError, ArithmeticError, LookupError, RecursionError)
"""What readers meet in a file whose parts are of other types than its recorder gives them."""

GZIP = b"\x1f\x8b"
CHUNK = 1 << 22
LONGEST = max(map(len, LAUNCHES))


def read_recording(path: Path, part: Callable[[Recording], Recording] | None = None) -> Recording:
    """The recording in a file, attributed. Raises ValueError, one line, for what cannot be read whole.

    part: what of it is wanted, as a recording that is not yet attributed; None: all.
    """
    from measure.trace.attribution.attribute import attribute
    from measure.trace.readers.read import read

    try:
        recording = read(path)
        recording = recording if part is None else part(recording)
    except ValueError as fault:
        raise Mistake(str(fault)) from fault
    except MALFORMED as fault:
        words = " ".join(f"{type(fault).__name__}: {fault}".split())
        message = f"{path}: expected what its recorder writes, got a part that is missing or of another type or range"
        raise Mistake(f"{message} ({words})") from fault
    if recording.source != "pyprof":  # which says itself to what each kernel belongs
        recording = attribute(recording)
    _check_kernels(recording, path)
    return recording


def _check_kernels(recording: Recording, path: Path) -> None:
    """Raises ValueError where kernels were launched, or data copied to a device, and no kernel was recorded."""
    whats = set(recording.kernels["what"])
    if "kernel" in whats:
        return
    if whats & {"memcpy", "memset"} or (recording.source == "kineto" and _launches(path)):
        unread = "".join(f" ({problem})" for problem in recording.problems if problem.startswith("not read"))
        raise Mistake(f"{path}: kernels were launched, none was recorded{unread}; {WITH_KERNELS[recording.source]}")


def _launches(path: Path) -> bool:
    """Whether a trace names a call that launches kernels."""
    with open(path, "rb") as raw:
        zipped = raw.read(2) == GZIP
        raw.seek(0)
        file = gzip.GzipFile(fileobj=raw) if zipped else raw
        tail = b""
        while chunk := file.read(CHUNK):
            text = tail + chunk
            if any(name in text for name in LAUNCHES):
                return True
            tail = text[-LONGEST:]
    return False
