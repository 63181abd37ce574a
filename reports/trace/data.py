"""One recording, cleaned, as the text, the document and the figures of `python -m runners.trace` take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from cleaning.trace.clean import CleanedTrace


NO_STEP_TIME = ("duplicate_launch", "autotune")
"""Faults of kernels that are no part of a step's time: recorded twice, or tried out before the first step."""


@dataclass(frozen=True)
class Trace:
    """One recording, cleaned. begin_ns: its first event on its own clock; -1: it keeps no times of day.

    pyprof_rule: show what PyProf's rule gives each kernel, too, where the recording has no FLOP of its own.
    numbered: whether its recorder numbered the calls, so that one which is missing before the last leaves a gap.
    after_last_s: from the end of the last call or kernel to the end of the recording; None: not recorded.
    host: name, start_ns, time_ns of annotations (DataLoader, optimizer) and of calls in no other; None: not recorded.
    """

    path: str
    source: str
    device_name: str
    steps: int | None
    begin_ns: int
    problems: tuple[str, ...]
    cleaned: CleanedTrace
    pyprof_rule: bool = False
    numbered: bool = False
    after_last_s: float | None = None
    host: pd.DataFrame | None = None


def kernel_counts(kernels: pd.DataFrame) -> dict[str, int]:
    """Kernels (of a recording without a device: operator calls) that were read, and how many found their operation."""
    mine = kernels[kernels["what"].isin(("kernel", "call"))]
    attributed = int(((mine["call"] >= 0) | (mine["instance"] >= 0)).sum())
    return {"read": len(mine), "attributed": attributed, "unattributed": len(mine) - attributed}


def has_states(trace: Trace) -> bool:
    """Whether there is something to compare the count with: FLOP that the recording itself gives its kernels, or those
    of PyProf's rule where they are asked for."""
    return trace.pyprof_rule or trace.source == "pyprof"


def kernel_words(name: str, letters: int = 10_000) -> str:
    """A kernel's name to be read: without its parameters and ATen's namespaces, and cut at its end, since names begin
    with what differs.

    "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float> >(int, float*)" →
    "vectorized_elementwise_kernel<4, AddFunctor<float> >".
    """
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("at::native::", "")
    depth, end = 0, len(text)
    for at, letter in enumerate(text):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and not depth and at and not text[at - 1].isspace():
            end = at
            break
    text = text[:end].strip() or name
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
