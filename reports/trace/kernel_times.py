"""Where the time of a recorded profile's kernels goes: by kernel, by module and by phase, the longest first.

Times are of kernels (of a recording without a device: of operator calls), added up over streams, so that shares are of
kernels' time and not of the wall clock. There are no rates here: the FLOP of an operation of several kernels
(Winograd's transforms and its product) are of all of them, and over the time of one they could be above any peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from reports.trace.data import NO_STEP_TIME, Trace

if TYPE_CHECKING:
    import pandas as pd

GROUPS = {"kernels_by_time": ("name", "phase"), "modules_by_time": ("module", "phase"), "phases_by_time": ("phase",)}
"""Key of the JSON document → what its rows are grouped by."""


@dataclass(frozen=True)
class TimeShare:
    """One group. time_s: of all its kernels in the recording; time_ratio: its share of all kernels' time."""

    name: str
    phase: str
    kernels: int
    time_s: float
    time_ratio: float


def time_shares(kernels: pd.DataFrame, columns: Sequence[str]) -> list[TimeShare]:
    """A TimeShare for each group, the longest first; [] where no times were recorded.

    kernels: the table of a cleaned recording. columns: "phase" alone, or a column of names and "phase". Rows that are
    no part of a step (`duplicate_launch`, `autotune`) are left out.
    """
    rows = kernels[~kernels["fault"].isin(NO_STEP_TIME)]
    whole_ns = int(rows["time_ns"].sum())
    if whole_ns <= 0:
        return []
    keys = [rows[name].fillna("").astype(str) for name in columns]
    found = []
    for key, mine in rows.groupby(keys, sort=True):
        time_ns = int(mine["time_ns"].sum())
        found.append(
            TimeShare(
                name=str(key[0]) if len(columns) > 1 else "",
                phase=str(key[-1]),
                kernels=len(mine),
                time_s=time_ns / 1e9,
                time_ratio=time_ns / whole_ns,
            )
        )
    return sorted(found, key=lambda share: (-share.time_s, share.name, share.phase))


def time_document(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    """Key → rows, for the JSON document."""
    kernels = trace.cleaned.kernels
    return {key: [asdict(row) for row in time_shares(kernels, columns)] for key, columns in GROUPS.items()}
