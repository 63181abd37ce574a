"""A characterization drawn, the second half: steps in order, inference, threads, and the paper beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analysis.characterize.fathom_groups import GROUPS, figure3_groups
from analysis.characterize.operation_mix import steps_of
from analysis.characterize.stationarity import survival
from analysis.characterize.step_reconstruction import Scaling
from reports.characterize.answer import CharacterizeAnswer, paper_label, paper_name
from reports.shared import figure_panels, figure_style
from reports.shared.numbers import fitting, si_time
from results.records.characterization import MODES, PLAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TYPES = 6
_MOST_PANELS = 12
_LETTERS = 24
_BAR_IN = 0.13
_MOST_TIMES = 4.0
_WHITE = {"boxstyle": "square,pad=0.1", "facecolor": "white", "linewidth": 0, "alpha": 0.85}
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "")


def group_looks() -> Mapping[str, tuple[Any, str]]:
    """Group → (colour, hatch); time between operations in grey."""
    colours = [*map(figure_style.colour, (0, 1, 2, 3, 4, 5, 9)), "0.8"]
    return {**dict(zip(GROUPS, zip(colours, _HATCHES, strict=True), strict=True)), "": ("0.1", "")}


def steps(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 1 in order of time: each step ÷ the median, with its 95 % interval, and Sen's trend."""
    from matplotlib.ticker import MaxNLocator

    of_training = [pair for pair in seen.steadiness if pair[0].mode == MODES[0]]
    shown = (seen.steadiness if len(seen.steadiness) <= _MOST_PANELS else of_training)[:_MOST_PANELS]
    if not shown:
        return None
    top = 2.0
    figure, drawn, spare = figure_panels.grid(len(shown), 4, 1.35)
    for axes, (recording, each) in zip(drawn, shown, strict=True):
        times = [step.time_s / each.median_s for step in steps_of(seen.data, recording.recording, PLAIN)]
        axes.plot(range(1, len(times) + 1), times, color="0.15", marker="o", markersize=2.6, linewidth=0.7)
        if each.low_s is not None and each.high_s is not None:
            ends = each.low_s / each.median_s, each.high_s / each.median_s
            axes.axhspan(*ends, color="#0173b2", alpha=0.25, linewidth=0)
        if each.trend_ratio is not None and len(times) > 1:
            ends = (1 - each.trend_ratio / 2, 1 + each.trend_ratio / 2)
            axes.plot((1, len(times)), ends, color="#d55e00", linewidth=1, linestyle=(0, (4, 2)))
        top = max(top, 1.15 * max(times))
        for place, time in enumerate(times, 1):
            if time > _MOST_TIMES:
                axes.annotate(
                    f"{time:.1f}",
                    (place, _MOST_TIMES),
                    (0, -12),
                    textcoords="offset points",
                    ha="center",
                    fontsize=6,
                    bbox=_WHITE,
                )
        figure_panels.title(axes, recording.workload, len(shown))
        p = "" if each.p_value is None else f", p {each.p_value:.2g}"
        words = f"{recording.mode}, {si_time(each.median_s)}{p}"
        axes.annotate(
            words, (0, 1), (2, -2), xycoords="axes fraction", textcoords="offset points", va="top", fontsize=6
        )
    for axes in drawn:
        axes.set_ylim(0, min(top, _MOST_TIMES))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    marks = (
        figure_panels.mark("a step", color="0.15", marker="o"),
        figure_panels.mark("median, 95 %", color="#0173b2", marker="s", alpha=0.4),
        figure_panels.mark("trend (Sen)", color="#d55e00", linewidth=1, linestyle=(0, (4, 2)), markersize=0),
    )
    below = "steps in order, without the profiler, ÷ their median; p: of no trend (Mann-Kendall)"
    return figure_panels.finish(figure, drawn, marks, below, spare=spare)


def training_inference(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 5: a step in each mode on each device, ÷ training on the CPU, or in ms without one."""
    ways = list(dict.fromkeys((each.device, each.mode) for each in seen.against))
    if len(ways) < 2:
        return None
    normal = all(each.ratio is not None for each in seen.against)
    workloads = list(dict.fromkeys(each.workload for each in seen.against))
    height_in = 0.5 + _BAR_IN * len(workloads) * (len(ways) + 0.6)
    figure, (axes,), _ = figure_panels.grid(1, 1, height_in, width_in=figure_style.COLUMN_IN * 1.7)
    marks = []
    for lane, way in enumerate(ways):
        look: dict[str, Any] = {"facecolor": "#de8f05" if way[0] == "cpu" else "#0173b2", "edgecolor": "white"}
        look["hatch"] = "////" if way[1] == "inference" else ""
        for place, workload in enumerate(workloads):
            mine = [one for one in seen.against if (one.workload, one.device, one.mode) == (workload, *way)]
            for each in mine[:1]:
                value = each.ratio if normal and each.ratio is not None else each.step_s * 1e3
                y = place + (lane - (len(ways) - 1) / 2) * 0.8 / len(ways)
                axes.barh(y, value, 0.8 / len(ways), linewidth=0, **look)
                axes.annotate(
                    si_time(each.step_s), (value, y), (2, 0), textcoords="offset points", va="center", fontsize=5.5
                )
        marks.append(figure_panels.patch(f"{way[1]}, {way[0]}", **look))
    figure_panels.label_rows(axes, [fitting(name, _LETTERS) for name in workloads], bars=True, fontsize=7)
    if normal:
        axes.set_xlim(0, 1.18 * max(1.0, *(each.ratio or 0.0 for each in seen.against)))
    below = "time of a step ÷ that of training on the CPU" if normal else "ms a step"
    return figure_panels.finish(figure, [axes], marks, below)


def parallelism(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's Figure 6: absolute time of the largest operation types at each number of threads."""
    workloads = list(dict.fromkeys(each.workload for each in seen.parallelism))[:_MOST_PANELS]
    if not workloads:
        return None
    figure, drawn, spare = figure_panels.grid(len(workloads), 3, 1.75, share_x=False, share_y=False)
    counts = sorted({count for each in seen.parallelism for count in each.times_s})
    for axes, workload in zip(drawn, workloads, strict=True):
        mine = [each for each in seen.parallelism if each.workload == workload and each.name != "step"]
        _threads(axes, mine[:_MOST_TYPES], counts)
        figure_panels.title(axes, workload, len(workloads))
    marks = [figure_panels.patch(f"{n} thread{'s' * (n > 1)}", facecolor=_shade(counts, n)) for n in counts]
    below = (
        "ms a step of the largest operation types, under the profiler; below each its group, in brackets its serial "
        "share (Amdahl)"
    )
    return figure_panels.finish(figure, drawn, marks, below, spare=spare)


def _shade(counts: list[int], count: int) -> str:
    low, high = 0.75, 0.15
    return f"{low + (high - low) * counts.index(count) / max(1, len(counts) - 1):.2f}"


def _threads(axes: Axes, scalings: Iterable[Scaling], counts: list[int]) -> None:
    names = []
    for place, each in enumerate(scalings):
        for lane, count in enumerate(counts):
            if count in each.times_s:
                y = place + (lane - (len(counts) - 1) / 2) * 0.8 / len(counts)
                axes.barh(y, each.times_s[count] * 1e3, 0.8 / len(counts), color=_shade(counts, count), linewidth=0)
        share = (
            ""
            if each.law is None
            else " (slower)"
            if each.law.serial_ratio > 1
            else f" ({100 * each.law.serial_ratio:.0f} %)"
        )
        names.append(f"{fitting(each.name, 22)}\n{each.group}{share}")
    figure_panels.label_rows(axes, names, bars=True, fontsize=5.5)


def tails(seen: CharacterizeAnswer) -> Figure | None:
    """Which part of the calls of a step takes longer than t, with the best of three laws."""
    shown = seen.tails[:_MOST_PANELS]
    if not shown:
        return None
    figure, drawn, spare = figure_panels.grid(len(shown), 4, 1.45)
    for axes, (mix, each) in zip(drawn, shown, strict=True):
        calls = [call.time_s for call in seen.data.calls if call.recording == mix.recording.recording]
        points = survival(calls)
        axes.plot([time * 1e6 for time, _ in points], [part for _, part in points], color="0.15", linewidth=1.2)
        words = f"{each.calls} calls"
        if each.fits:
            best = each.fits[0]
            fitted = [(time, best.survival(time)) for time, _ in points]
            axes.plot(
                [time * 1e6 for time, _ in fitted], [part for _, part in fitted],
                color="#d55e00", linewidth=1, linestyle=(0, (4, 2)),
            )  # fmt: skip
            words += f"\n{best.law}"
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.5 / max(one.calls for _, one in shown), 1.5)
        axes.annotate(words, (0, 0), (3, 3), xycoords="axes fraction", textcoords="offset points", fontsize=6)
        figure_panels.title(axes, mix.label, len(shown))
    best_law: dict[str, Any] = {"color": "#d55e00", "linewidth": 1, "linestyle": (0, (4, 2)), "markersize": 0}
    marks = (
        figure_panels.mark("calls of one step", color="0.15", linewidth=1.2, markersize=0),
        figure_panels.mark("best of exponential, Pareto, log-normal", **best_law),
    )
    below, up = "that takes at least so many µs", "part of the calls"
    return figure_panels.finish(figure, drawn, marks, below, spare=spare, upwards=up)


def reproduced(seen: CharacterizeAnswer) -> Figure | None:
    """The paper's shares by group beside ours, a pair of bars a workload."""
    paper = figure3_groups()
    pairs = [each for each in seen.compared if paper_name(each) in paper] if seen.reproduce else []
    if not pairs:
        return None
    figure, (axes,), _ = figure_panels.grid(1, 1, 0.6 + 3.0 * _BAR_IN * len(pairs), width_in=figure_style.PAGE_IN)
    looks = group_looks()
    for place, each in enumerate(pairs):
        ours = {group: share.ratio for group, share in each.groups.items()}
        theirs = {group: cell / 100 for group, cell in paper[paper_name(each)].items()}
        for y, shares in ((place - 0.2, ours), (place + 0.2, theirs)):
            left = 0.0
            for group, share in shares.items():
                colour, hatch = looks[group]
                axes.barh(y, 100 * share, 0.34, left, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4)
                if share >= 0.06:
                    axes.text(
                        left + 50 * share,
                        y,
                        group,
                        ha="center",
                        va="center",
                        fontsize=6,
                        color="0.1",
                        bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "linewidth": 0, "alpha": 0.8},
                    )
                left += 100 * share
    ticks = [y for place in range(len(pairs)) for y in (place - 0.2, place + 0.2)]
    words = [text for each in pairs for text in (f"{paper_label(each)}, ours", "paper")]
    axes.set_yticks(ticks, words, fontsize=6.5)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.grid(axis="y", visible=False)
    marks = [
        figure_panels.patch(f"{group} {GROUPS[group]}", facecolor=colour, hatch=hatch, edgecolor="white")
        for group, (colour, hatch) in looks.items()
        if group
    ]
    below = "per cent of a training step; paper: Figure 3 of Adolf et al. 2016, which cuts each cell down"
    return figure_panels.finish(figure, [axes], marks, below)
