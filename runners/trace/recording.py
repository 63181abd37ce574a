"""An attributed recording, cleaned: what text, document, page and figures are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from measure.trace.attribution.recording import Recording
    from reports.trace.timeline import Trace


def cleaned(recording: Recording) -> Trace:
    """An attributed recording, cleaned. Raises Inconsistent for one that contradicts itself."""
    import pandas as pd

    from cleaning.trace.clean import clean
    from reports.trace.timeline import Trace

    calls, ranges = recording.calls, recording.ranges
    annotations = ranges[~ranges["name"].str.match("ProfilerStep#|nn.Module: |flopledger")]
    starts = pd.concat([calls["start_ns"], recording.kernels["start_ns"]])
    return Trace(
        path=recording.path,
        source=recording.source,
        device_name=recording.device_name,
        steps=recording.steps,
        begin_ns=int(starts[starts >= 0].min()) if (starts >= 0).any() else -1,
        problems=recording.problems,
        cleaned=clean(
            recording.calls,
            recording.kernels,
            recording.missing,
            numbered=recording.numbered,
        ),
        numbered=recording.numbered,
        after_last_s=_after_last_s(recording),
        host=pd.concat([part[["name", "start_ns", "time_ns"]] for part in (annotations, calls[calls["parent"] < 0])]),
    )


def _after_last_s(recording: Recording) -> float | None:
    """From the end of the last call or kernel to the end of the recording; None: one of them is not recorded."""
    ends = [
        int((frame["start_ns"] + frame["time_ns"]).max())
        for frame in (recording.calls, recording.kernels)
        if len(frame) and int(frame["start_ns"].max()) >= 0
    ]
    if recording.end_ns < 0 or not ends:
        return None
    return max(recording.end_ns - max(ends), 0) * 1e-9
