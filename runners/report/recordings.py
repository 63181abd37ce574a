"""Recordings that a sweep kept beside its rows, read for a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame


def recording(path: Path, file: str) -> tuple[DataFrame, DataFrame]:
    """Calls and kernels of the last step of a recording in the run `path`. Raises ValueError if it is damaged
    or cut."""
    from measure.trace.attribution.last_step import last_step
    from runners.cli import MALFORMED, read_recording

    try:
        recording = read_recording(path / file, last_step)
    except MALFORMED as fault:
        raise ValueError(f"{file}: {type(fault).__name__}: {' '.join(str(fault).split())}") from fault
    if recording.missing:
        raise ValueError(f"{file}: calls are missing from it: {recording.missing[0].reason}")
    return recording.calls, recording.kernels
