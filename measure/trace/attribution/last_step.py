"""A part of a recording: of one of ours its last step; of any what came before a last step that was cut.

A sweep records warm-up steps, timed steps and one last step of a work in a row; the counts are of the last one. Our own
range "flopledger.step" is around each, on the thread that trains; before it begins the device has been waited for, so
that whatever was launched or called from its beginning on belongs to it.

Not claimed of the first: anything of recordings without that range.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from measure.trace.attribution.nesting import Flags
from measure.trace.attribution.phases import OWN
from measure.trace.attribution.recording import Recording

STEP = f"{OWN}step"


def last_step(recording: Recording) -> Recording:
    """What lies in the last step, as a recording that is not yet attributed. Raises ValueError if no step is marked."""
    spans = recording.ranges[recording.ranges["name"] == STEP]
    if not len(spans):
        raise ValueError(f"{recording.path}: expected a range {STEP} around each step, the recording has none")
    begins = spans["start_ns"].to_numpy(np.int64)
    ends = begins + spans["time_ns"].to_numpy(np.int64)
    begin, end = int(begins.max()), int(ends[begins.argmax()])
    kernels, gaps = recording.kernels, recording.gaps
    before, after = gaps["before_ns"], gaps["after_ns"]  # a part of a gap may lie in the step
    touching = ((after < 0) | (after >= begin)) & ((before < 0) | (before <= end))
    launched = kernels["launch_start_ns"].to_numpy(np.int64)
    own = (launched >= begin) & (launched <= end)
    unlaunched = (launched < 0) & (kernels["start_ns"].to_numpy(np.int64) >= begin)
    return replace(
        recording,
        calls=_in(recording.calls, "start_ns", begin, end),
        kernels=kernels[own | unlaunched].reset_index(drop=True),
        ranges=_in(recording.ranges, "start_ns", begin, end),
        flows=_in(recording.flows, "forward_ns", begin, end),
        gaps=gaps[touching].reset_index(drop=True),
        lost_launches=_in(recording.lost_launches, "start_ns", begin, end),
    )


def before_step(recording: Recording, step: int, begin_ns: int, lacks: str) -> Recording:
    """What was recorded before a last step of this number, which was cut, as a recording that is not yet attributed.
    lacks: what all steps before it have."""
    kernels = recording.kernels
    launched = kernels["launch_start_ns"].to_numpy(np.int64)
    launched = np.where(launched >= 0, launched, kernels["start_ns"].to_numpy(np.int64))
    last_ns = begin_ns - 1
    return replace(
        recording,
        calls=_in(recording.calls, "start_ns", -1, last_ns),
        kernels=kernels[launched < begin_ns].reset_index(drop=True),
        ranges=_in(recording.ranges, "start_ns", -1, last_ns),
        flows=_in(recording.flows, "forward_ns", -1, last_ns),
        gaps=_in(recording.gaps, "before_ns", -1, last_ns),
        lost_launches=_in(recording.lost_launches, "start_ns", -1, last_ns),
        problems=(*recording.problems, f"step {step} was cut: it has no {lacks}, and is left out"),
    )


def _in(table: pd.DataFrame, column: str, begin: int, end: int) -> pd.DataFrame:
    at: Any = table[column].to_numpy(np.int64)
    inside: Flags = (at >= begin) & (at <= end)
    return table[inside].reset_index(drop=True)
