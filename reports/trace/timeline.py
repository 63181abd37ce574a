"""Shows one step of a recorded profile in time: for how long the device ran something, and the gaps between.

`timeline` takes a `TraceView`, one cleaned recording, and returns a `Timeline` of the middle one of its marked steps. A
step begins with its first kernel, and ends where the next step's first kernel begins. Without marks, the whole
recording is shown. The timeline is that of the device with the most kernel time, or of operator calls where no device
was recorded. In a gap no stream or thread ran anything. Kernels recorded twice, or tried out before a choice, are left
out. A gap lists what the host ran meanwhile, which need not be its cause. Without a device, a gap is time outside of
recorded operators, in which the processor may have worked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from analysis.rank_timelines import clipped, length, spans
from reports.shared.numbers import digits, percent, shortened_name, si_time

if TYPE_CHECKING:
    import pandas as pd

    from cleaning.trace.clean import CleanedTrace


NO_STEP_TIME = ("duplicate_launch", "autotune")
"""Faults of kernels that are not part of a step's time. Such kernels were recorded twice, or tried out before the first
step."""


@dataclass(frozen=True)
class TraceView:
    """One cleaned recording.

    begin_ns: its first event on the recorder's clock; -1: the recording has no times of day. pyprof_rule: whether
    PyProf's number for each kernel is shown where the recording has no FLOP. numbered: whether the recorder numbered
    the calls, so that a missing call before the last one leaves a gap. after_last_s: from the end of the last call or
    kernel to the end of the recording; None: not recorded. host: name, start_ns, time_ns of annotations (DataLoader,
    optimizer) and of outermost calls; None: not recorded.
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
    """Return how many kernels (in a recording without a device: operator calls) were read, and how many found their
    operation."""
    rows = kernels[kernels["what"].isin(("kernel", "call"))]
    attributed = int(((rows["call"] >= 0) | (rows["instance"] >= 0)).sum())
    return {"read": len(rows), "attributed": attributed, "unattributed": len(rows) - attributed}


def has_states(trace: TraceView) -> bool:
    """Return whether there is a count to compare with: FLOP in the recording itself, or by PyProf's rule if
    requested."""
    return trace.pyprof_rule or trace.source == "pyprof"


def kernel_label(name: str, letters: int = 10_000) -> str:
    """Return a readable name of a kernel: without its parameters and ATen's namespaces, and cut at its end, since names
    differ at their beginning.

    "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float> >(int, float*)" →
    "vectorized_elementwise_kernel<4, AddFunctor<float> >".
    """
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("at::native::", "")
    depth, end = 0, len(text)
    for index, letter in enumerate(text):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and not depth and index and not text[index - 1].isspace():
            end = index
            break
    text = text[:end].strip() or name
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


LONGEST_GAPS = 10
LEAST_GAP_RATIO = 1e-4
"""Share of the window below which a gap is in no table; the total idle time includes all."""

_NAME_LETTERS = 70
_HOST_NAMES = 2


@dataclass(frozen=True)
class Gap:
    """A time in which nothing ran. after, before: names of the kernels at its ends; host: what was recorded on the host
    meanwhile, the longest first."""

    start_ns: int
    time_ns: int
    after: str
    before: str
    host: str = ""


@dataclass(frozen=True)
class Timeline:
    """The window that is shown.

    step: the recorder's number; None: no step is marked. busy_ns: time in which any stream or thread ran something;
    kernels_ns: of it, that in which a kernel ran. is_last: no kernel of a later step says where the step ends, so that
    it is shown up to the end of its last kernel. others: number of each other device that ran kernels in the window →
    their time in it, ns.
    """

    step: int | None
    steps: int
    begin_ns: int
    end_ns: int
    busy_ns: int
    kernels_ns: int
    gaps: tuple[Gap, ...]
    calls: bool
    is_last: bool = False
    device: int = -1
    others: Mapping[int, int] = field(default_factory=dict)

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns


def timeline(trace: TraceView) -> Timeline | None:
    """Return the middle one of the steps all of whose kernels have a usable duration; None where there is none, or
    where no kernel has a time of day."""
    kernels = trace.cleaned.kernels
    kernels = kernels[(kernels["start_ns"] >= 0) & ~kernels["fault"].isin(NO_STEP_TIME)]
    step_of = {
        instance.index: instance.step
        for instance in trace.cleaned.instances
        if instance.step is not None and instance.step >= 0
    }
    steps = kernels["instance"].map(step_of).astype(float)
    untimed = kernels["untimed"] > 0
    if (untimed.any() and steps[untimed].isna().any()) or not (kernels["time_ns"] > 0).any():
        return None
    every = kernels[(kernels["time_ns"] > 0) | untimed].sort_values("start_ns", kind="stable")
    times = every.groupby("device")["time_ns"].sum()
    device = int(times.index.to_numpy()[times.to_numpy().argmax()])
    kernels = every[every["device"] == device]
    window = _window(kernels, steps.loc[kernels.index], {*steps[untimed].tolist()})
    if window is None:
        return None
    begin, end, step = window
    every, kernels = every[every["time_ns"] > 0], kernels[kernels["time_ns"] > 0]
    steps = steps.loc[kernels.index]
    shown = kernels[(kernels["start_ns"] >= begin) & (kernels["start_ns"] < end)]
    others = every[(every["device"] != device) & (every["start_ns"] >= begin) & (every["start_ns"] < end)]
    return Timeline(
        step=step,
        steps=len({*step_of.values()}),
        is_last=step is not None and end == int((kernels["start_ns"] + kernels["time_ns"]).max()),
        begin_ns=begin,
        end_ns=end,
        busy_ns=_covered(shown, end),
        kernels_ns=_covered(shown[shown["what"].isin(("kernel", "call"))], end),
        gaps=_gaps(shown, end, trace.host),
        calls=bool((kernels["what"] == "call").any()),
        device=device,
        others={
            number: _covered(others[(others["what"] == "kernel") & (others["device"] == number)], end)
            for number in sorted({*others["device"].tolist()})
        },
    )


def _covered(rows: pd.DataFrame, end: int) -> int:
    """Return the time up to `end` in which at least one of the rows ran, ns."""
    return length(clipped(spans(rows.assign(end_ns=rows["start_ns"] + rows["time_ns"])), 0, end))


def _window(kernels: pd.DataFrame, steps: pd.Series[float], untimed: set[float]) -> tuple[int, int, int | None] | None:
    """Return begin and end, ns, of the step nearest to the middle, and its number.

    untimed: steps with a kernel without a usable duration, which are not shown. If there are any, a last step is not
    shown either: it seems shorter than it is, since no later kernel ends it.
    """
    last = int((kernels["start_ns"] + kernels["time_ns"]).max())
    starts = kernels["start_ns"].groupby(steps).min().sort_values()
    if starts.empty:
        return int(kernels["start_ns"].min()), last, None
    middle, final = (len(starts) - 1) // 2, len(starts) - 1
    timed = [
        index for index, step in enumerate(starts.index) if step not in untimed and not (untimed and index == final)
    ]
    if not timed:
        return None
    index = min(timed, key=lambda index: abs(index - middle))
    return int(starts.iloc[index]), int(starts.iloc[index + 1]) if index < final else last, int(starts.index[index])


def _gaps(shown: pd.DataFrame, end: int, host: pd.DataFrame | None) -> tuple[Gap, ...]:
    """Return the longest times in which nothing ran."""
    start = shown["start_ns"].to_numpy(np.int64)
    stop = np.minimum(start + shown["time_ns"].to_numpy(np.int64), end)
    reach = np.maximum.accumulate(stop)
    last = np.maximum.accumulate(np.where(stop == reach, np.arange(len(stop)), 0))  # whose end that is
    before = np.append(start[1:], end)
    free = np.maximum(before - reach, 0)
    names = shown["name"].tolist()
    order = np.argsort(-free, kind="stable")[:LONGEST_GAPS]
    return tuple(
        Gap(
            int(reach[index]),
            int(free[index]),
            names[last[index]],
            names[index + 1] if index + 1 < len(names) else "",
            "" if host is None else _host_text(host, int(reach[index]), int(before[index])),
        )
        for index in order.tolist()
        if free[index] > LEAST_GAP_RATIO * (end - start[0])
    )


def _host_text(host: pd.DataFrame, begin: int, end: int) -> str:
    """Return the two names that took most of the host's time between two times, with their time in it."""
    within = (host["start_ns"] + host["time_ns"]).clip(upper=end) - host["start_ns"].clip(lower=begin)
    longest = host.assign(ns=within)[within > 0].groupby("name")["ns"].sum().nlargest(_HOST_NAMES)
    return ", ".join(f"{shortened_name(str(name), _NAME_LETTERS)} {si_time(ns / 1e9)}" for name, ns in longest.items())


def sentence(timeline: Timeline) -> str:
    """Return a sentence on the window that is shown, and on how much of it something ran."""
    what = "operators" if timeline.calls else "kernels"
    where = "The whole recording" if timeline.step is None else f"Step {timeline.step}, one of {timeline.steps} marked"
    where += ", from its first kernel to the end of its last" if timeline.is_last and not timeline.calls else ""
    length = timeline.length_ns or 1
    free, copies = timeline.length_ns - timeline.busy_ns, timeline.busy_ns - timeline.kernels_ns
    rest = f"nothing ran for {si_time(free / 1e9)} ({percent(free / length)})" if free else "without a gap"
    copies_only = f", copies and fills alone for {digits(100 * copies / length, 2)} %" if copies else ""
    ran = f"{what} ran for {digits(100 * timeline.kernels_ns / length, 2)} %"
    others = "".join(
        f" Device {number}: kernels ran for {digits(100 * ns / length, 2)} % of the same time."
        for number, ns in timeline.others.items()
    )
    device = f" of device {timeline.device}" if timeline.others else ""
    return f"{where}: {si_time(timeline.length_ns / 1e9)}, of which {ran}{device}{copies_only}; {rest}.{others}"
