"""The answer of `runners.characterize` as text: shares by group, likeness, steadiness, inference, parallelism, cost.

`look` works everything out of the recorded rows; `to_text` says it. Prints nothing and knows no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.amdahl import Amdahl
from analysis.characterized import (
    Against,
    Launching,
    compared,
    launching,
    linkage,
    mixes,
    steadiness,
    training_against_inference,
)
from analysis.fathom_figure3 import figure3_groups
from analysis.fathom_groups import FATHOM, GROUPS, MOST_UNCLASSIFIED_RATIO, OPERATIONS, Grouping
from analysis.group_costs import Density, GroupCost, densities, group_costs
from analysis.mix import Mix, types_for
from analysis.parallelism import Scaling, over_batch, parallelism
from analysis.similarity import Merge, inverted
from analysis.stationarity import Stationarity
from analysis.ways import ways
from reports.columns import columns
from reports.words import STATUS_WORDS, digits, percent, si, si_time
from results.characterization import Characterization, Recording

UNKNOWN = "–"
MOST_TYPES = 4
"""Operation types told of one workload in parallelism."""

SUFFICIENT = 0.9
"""The part of the time in operations that "types for 90 %" is about."""


@dataclass(frozen=True)
class Seen:
    """Everything that is told. compared: the mixes that stand for their workloads."""

    data: Characterization
    mixes: tuple[Mix, ...]
    compared: tuple[Mix, ...]
    linkage: tuple[Merge, ...]
    steadiness: tuple[tuple[Recording, Stationarity], ...]
    against: tuple[Against, ...]
    parallelism: tuple[Scaling, ...]
    over_batch: tuple[tuple[Recording, Mix], ...]
    costs: tuple[GroupCost, ...]
    densities: tuple[Density, ...]
    launching: tuple[Launching, ...]
    notes: tuple[str, ...] = ()
    reproduce: str = ""


def look(
    data: Characterization, grouping: Grouping = FATHOM, notes: Sequence[str] = (), *, reproduce: str = ""
) -> Seen:
    """Work it all out. reproduce: "fathom" to tell the paper's numbers beside ours."""
    found = mixes(data, grouping)
    chosen = compared(found)
    return Seen(
        data=data,
        mixes=tuple(found),
        compared=tuple(chosen),
        linkage=tuple(linkage(chosen)),
        steadiness=tuple(steadiness(data)),
        against=tuple(training_against_inference(data)),
        parallelism=tuple(parallelism(data, grouping)),
        over_batch=tuple(over_batch(data, grouping)),
        costs=tuple(group_costs(data, grouping)),
        densities=tuple(densities(data, grouping)),
        launching=tuple(launching(found)),
        notes=tuple(notes),
        reproduce=reproduce,
    )


def to_text(seen: Seen) -> str:
    """Everything a person is told."""
    parts = (
        _groups(seen),
        _likeness(seen),
        _reproduced(seen),
        _steady(seen),
        _against(seen),
        _parallel(seen),
        _batches(seen),
        _costs(seen),
        _launches(seen),
        _ways(seen),
        _lost(seen),
    )
    return "\n".join("\n".join(lines) + "\n" for lines in map(list, parts) if lines)


def types_told(mix: Mix) -> int | None:
    """How many operation types make 90 % of the time in operations; None where none has any."""
    shares = [each.share_ratio for each in mix.operations]
    return types_for(shares, SUFFICIENT) if any(shares) else None


def _whole(ratio: float) -> str:
    """Per cent as the paper has them, without a sign: 0.4 is "<1"."""
    return "" if ratio == 0 else "<1" if ratio < 0.01 else f"{100 * ratio:.0f}"


def _groups(seen: Seen) -> Iterator[str]:
    if not seen.mixes:
        return
    steps = max(each.steps for each in seen.mixes)
    yield f"Share of a step by group, per cent (median of {steps} profiled steps)"
    rows = [["workload", "step", *GROUPS, "unclassified", "types for 90 %", "of all"]]
    for each in seen.mixes:
        told = types_told(each)
        rows.append(
            [
                each.label,
                si_time(each.step_s if each.step_s is not None else each.profiled_s),
                *(_whole(each.groups[group].ratio) for group in GROUPS),
                _whole(each.unclassified_ratio) or "0",
                UNKNOWN if told is None else str(told),
                str(len(each.operations)),
            ]
        )
    yield from columns(rows, left=(0,))
    yield "  ".join(f"{letter} {words}" for letter, words in GROUPS.items())
    for each in seen.mixes:
        if each.unclassified_ratio > MOST_UNCLASSIFIED_RATIO:
            names = ", ".join(f"{name} {percent(ratio)}" for name, ratio in list(each.unclassified.items())[:5])
            yield f"warning: {each.label}: {percent(each.unclassified_ratio)} of the step is in no group: {names}"


def _likeness(seen: Seen) -> Iterator[str]:
    if not seen.linkage:
        return
    yield "Likeness by operation types: cosine distance, centroid linkage"
    rows = [["distance", "joins", "with"]]
    rows += [[f"{merge.height:.4f}", " + ".join(merge.left), " + ".join(merge.right)] for merge in seen.linkage]
    yield from columns(rows, left=(1, 2))
    if crossed := inverted(seen.linkage):
        yield f"note: {len(crossed)} of these lie below one that made a part of them, as centroids may"


def _reproduced(seen: Seen) -> Iterator[str]:
    if not seen.reproduce:
        return
    paper = figure3_groups()
    yield "Ours beside the paper's (Adolf et al. 2016, Figure 3: a CPU of eight threads, TensorFlow 0.8), per cent"
    rows = [["workload", "", *OPERATIONS, "H", "largest"]]
    missing = list(paper)
    for each in seen.compared:
        name = paper_name(each)
        if name not in paper:
            continue
        missing.remove(name)
        ours = {group: each.groups[group].ratio for group in GROUPS}
        theirs = {group: cell / 100 for group, cell in paper[name].items()}
        largest = max(theirs, key=lambda group: theirs[group])
        same = "same" if largest == each.dominant else "another"
        rows.append([name, "ours", *(_whole(ours[group]) for group in GROUPS), f"{each.dominant}, {same}"])
        rows.append(["", "paper", *(_whole(theirs[group]) for group in OPERATIONS), "", largest])
    yield from columns(rows, left=(0, 1, 10))
    if missing:
        yield f"note: not recorded here: {', '.join(missing)}"
    yield "note: the paper's rows sum to 94 to 99; our H, and what PyTorch does as a view, is in none of its columns"


def paper_name(mix: Mix) -> str:
    """The paper's name of a workload: "speech" of "fathom-speech@small"."""
    return mix.recording.workload.partition("@")[0].removeprefix("fathom-")


def _steady(seen: Seen) -> Iterator[str]:
    if not seen.steadiness:
        return
    yield "Steps one after another, without the profiler: spread, and a trend over all of them (Mann-Kendall)"
    rows = [["workload", "mode", "steps", "mean", "95 %", "spread", "95 %", "trend", "95 %", "p", "verdict"]]
    for recording, each in seen.steadiness:
        rows.append(
            [
                recording.workload,
                recording.mode,
                str(each.n),
                si_time(each.mean_s),
                UNKNOWN if each.low_s is None else f"± {percent((each.mean_s - each.low_s) / each.mean_s)}",
                _ratio(each.spread_ratio),
                _range(each.spread_low, each.spread_high),
                _signed(each.trend_ratio),
                _range(each.trend_low, each.trend_high, signed=True),
                UNKNOWN if each.p_value is None else f"{each.p_value:.2g}",
                each.verdict,
            ]
        )
    yield from columns(rows, left=(0, 1))


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else percent(value)


def _signed(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:+.0f} %"


def _range(low: float | None, high: float | None, signed: bool = False) -> str:
    if low is None or high is None:
        return UNKNOWN
    if signed:
        return f"{100 * low:+.0f} to {100 * high:+.0f} %"
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def _against(seen: Seen) -> Iterator[str]:
    if len({(each.mode, each.device) for each in seen.against}) < 2:
        return
    yield "Training against inference: a step, and ÷ training on the CPU"
    ways = list(dict.fromkeys((each.device, each.mode) for each in seen.against))
    rows = [["workload", *(text for device, mode in ways for text in (f"{mode}, {device}", "÷"))]]
    for workload in dict.fromkeys(each.workload for each in seen.against):
        mine = {(each.device, each.mode): each for each in seen.against if each.workload == workload}
        cells = []
        for way in ways:
            each = mine.get(way)
            cells += [UNKNOWN, UNKNOWN] if each is None else [si_time(each.step_s), _times(each.ratio)]
        rows.append([workload, *cells])
    yield from columns(rows, left=(0,))


def _times(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else digits(ratio, 2)


def _parallel(seen: Seen) -> Iterator[str]:
    if not seen.parallelism:
        return
    counts = sorted({count for each in seen.parallelism for count in each.times_s})
    yield "Over threads: time a step, and the part that Amdahl's law leaves serial (of the time at one thread)"
    rows = [["workload", "type", "group", *(f"{count} thr." for count in counts), "speed-up", "serial", "95 %"]]
    told: dict[str, int] = {}
    for each in seen.parallelism:
        told[each.workload] = told.get(each.workload, 0) + 1
        if told[each.workload] > MOST_TYPES + 1:
            continue
        law = each.law
        rows.append(
            [
                each.workload if each.name == "step" else "",
                each.name,
                each.group,
                *(si_time(each.times_s[count]) if count in each.times_s else UNKNOWN for count in counts),
                UNKNOWN if law is None else f"{law.speed_up:.2f}",
                *([UNKNOWN, UNKNOWN] if law is None else _serial(law)),
            ]
        )
    yield from columns(rows, left=(0, 1, 2))


def _serial(law: Amdahl) -> tuple[str, str]:
    """The serial share and its interval; of a type that more threads make slower, that."""
    if law.serial_ratio > 1:
        return "slower", ""
    return percent(max(0.0, law.serial_ratio)), _range(law.serial_low, law.serial_high)


def _batches(seen: Seen) -> Iterator[str]:
    if not seen.over_batch:
        return
    yield "Over the batch: a step under the profiler, a sample of it, and the shares"
    rows = [["workload", "batch", "step", "a sample", *GROUPS]]
    for recording, each in seen.over_batch:
        sample = each.profiled_s / recording.batch_size
        cells = [recording.workload, str(recording.batch_size), si_time(each.profiled_s), si_time(sample)]
        rows.append([*cells, *(_whole(each.groups[group].ratio) for group in GROUPS)])
    yield from columns(rows, left=(0,))


def _costs(seen: Seen) -> Iterator[str]:
    if not seen.costs:
        return
    yield "What the groups of a training step do (exact), and at what rate (under the profiler)"
    rows = [["workload", "group", "calls", "FLOP", "bytes", "FLOP/byte", "time", "FLOP/s", "bytes/s"]]
    last = ""
    for each in seen.costs:
        rows.append(
            [
                each.workload if each.workload != last else "",
                each.group,
                str(each.calls),
                si(each.flop, ""),
                si(each.bytes, "B"),
                UNKNOWN if each.flop_per_byte is None else digits(each.flop_per_byte, 2),
                UNKNOWN if each.time_s is None else si_time(each.time_s),
                UNKNOWN if each.flop_per_s is None else si(each.flop_per_s, ""),
                UNKNOWN if each.bytes_per_s is None else si(each.bytes_per_s, "B"),
            ]
        )
        last = each.workload
    yield from columns(rows, left=(0, 1))


def _launches(seen: Seen) -> Iterator[str]:
    if not seen.launching:
        return
    yield "How a step is cut up: launches (on a CPU: calls that would be some), and what lies between"
    rows = [["workload", "launches", "a launch", "below 10 µs", "between", "peak memory", "lives at once"]]
    for each, mix in zip(seen.launching, seen.mixes, strict=True):
        recording = mix.recording
        rows.append(
            [
                each.workload,
                f"{each.launches:.0f}",
                si_time(each.launch_s),
                percent(each.small_ratio),
                percent(each.between_ratio),
                UNKNOWN if recording.peak_memory_bytes is None else si(recording.peak_memory_bytes, "B"),
                UNKNOWN if recording.live_bytes is None else si(recording.live_bytes, "B"),
            ]
        )
    yield from columns(rows, left=(0,))


def _ways(seen: Seen) -> Iterator[str]:
    """Seeds and switches: what each changes of the step."""
    rows = [["workload", "way", "step", "÷ the mix", "95 %", "energy a step"]]
    for each in ways(seen.data):
        spent = UNKNOWN if each.energy_j is None else f"{digits(each.energy_j)} J"
        ratio = UNKNOWN if each.ratio is None else digits(each.ratio, 3)
        interval = UNKNOWN if each.low is None or each.high is None else f"{each.low:.2f} to {each.high:.2f}"
        rows.append([each.workload, each.way, si_time(each.step_s), ratio, interval, spent])
    if len(rows) > 1:
        yield "Other ways to run the training step"
        yield from columns(rows, left=(0, 1))


def _lost(seen: Seen) -> Iterator[str]:
    for each in seen.data.recordings:
        if each.status != "ok":
            words = STATUS_WORDS.get(each.status, each.status)
            yield f"not recorded: {each.workload}, {each.mode}, {each.device}, for {each.why}: {words}: {each.reason}"
    profiled = [each.profiled_s / each.step_s for each in seen.mixes if each.step_s]
    if profiled and max(profiled) > 1.1:
        yield f"note: under the profiler steps took {min(profiled):.2f} to {max(profiled):.2f} times as long"
    yield from (f"note: {note}" for note in seen.notes)
