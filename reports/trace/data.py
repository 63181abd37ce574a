"""One recording, cleaned, as the text, the document and the figures of `python -m runners.trace` take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from cleaning.trace import CleanedTrace


NO_STEP_TIME = ("duplicate_launch", "autotune")
"""Faults of kernels that are no part of a step's time: recorded twice, or tried out before the first step."""


@dataclass(frozen=True)
class Trace:
    """One recording, cleaned. begin_ns: its first event on its own clock; -1: it keeps no times of day.

    numbered: whether its recorder numbered the calls, so that one which is missing before the last leaves a gap.
    after_last_s: from the end of the last call or kernel to the end of the recording; None: not recorded.
    """

    path: str
    source: str
    device_name: str
    steps: int | None
    begin_ns: int
    problems: tuple[str, ...]
    cleaned: CleanedTrace
    numbered: bool = False
    after_last_s: float | None = None


def kernel_counts(kernels: pd.DataFrame) -> dict[str, int]:
    """Kernels (of a recording without a device: operator calls) that were read, and how many found their operation."""
    mine = kernels[kernels["what"].isin(("kernel", "call"))]
    attributed = int(((mine["call"] >= 0) | (mine["instance"] >= 0)).sum())
    return {"read": len(mine), "attributed": attributed, "unattributed": len(mine) - attributed}
