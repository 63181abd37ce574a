"""The answer of `runners.characterize` as text. This half: threads, batches, cost, launches, calls, other ways."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.characterize.execution_modes import step_energy_j, ways
from analysis.characterize.fathom_groups import GROUPS
from analysis.characterize.thread_scaling import Amdahl
from reports.characterize.text import CharacterizeAnswer
from reports.characterize.words import at_least_time, in_range, joules, ratio, times, whole
from reports.shared.layout import Part, table_of
from reports.shared.numbers import DASH, digits, percent, si, si_time

NO_GROUP = "none"
"""What stands for the group of operations that have none."""

MOST_TYPES = 4
"""Operation types listed of one workload in parallelism."""


def _serial(law: Amdahl) -> tuple[str, str]:
    """The serial share and its interval; of a type that more threads make slower, that."""
    if law.serial_ratio > 1:
        return "slower", ""
    return f"{100 * law.serial_ratio:.0f} %", in_range(law.serial_low, law.serial_high)


def parallel(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.parallelism:
        return
    counts = sorted({count for each in seen.parallelism for count in each.times_s})
    yield "Over threads: time a step, and the part that Amdahl's law leaves serial (of the time at one thread)"
    rows = [["workload", "type", "group", *(f"{count} thr." for count in counts), "speed-up", "serial", "95 %"]]
    shown: dict[str, int] = {}
    for each in seen.parallelism:
        shown[each.workload] = shown.get(each.workload, 0) + 1
        if shown[each.workload] > MOST_TYPES + 1:
            continue
        law = each.law
        rows.append(
            [
                each.workload if each.name == "step" else "",
                each.name,
                each.group,
                *(si_time(each.times_s[count]) if count in each.times_s else DASH for count in counts),
                DASH if law is None else f"{law.speed_up:.2f}",
                *([DASH, DASH] if law is None else _serial(law)),
            ]
        )
    yield table_of(rows, words=(0, 1, 2), wraps=(0, 1, 2))


def batches(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.over_batch:
        return
    yield "Over the batch: a step under the profiler, a sample of it, and the shares"
    rows = [["workload", "batch", "step", "a sample", *GROUPS]]
    for recording, each in seen.over_batch:
        sample = each.profiled_s / recording.batch_size
        cells = [recording.workload, str(recording.batch_size), si_time(each.profiled_s), si_time(sample)]
        rows.append([*cells, *(whole(each.groups[group].ratio) for group in GROUPS)])
    yield table_of(rows, words=(0,), wraps=(0,))


def costs(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.costs:
        return
    yield "What the groups of a training step do (exact), and at what rate (under the profiler)"
    rows = [["workload", "group", "calls", "FLOP", "bytes", "FLOP/byte", "time", "FLOP/s", "bytes/s"]]
    rows[0] += ["of peak"] if seen.peaks else []
    last = ""
    for each in seen.costs:
        rows.append(
            [
                each.workload if each.workload != last else "",
                each.group or NO_GROUP,
                str(each.calls),
                f"≥ {si(each.at_least_flop, '')}" if each.flop is None else si(each.flop, ""),
                f"{'≥ ' if each.unsized_calls else ''}{si(each.bytes, 'B')}",
                DASH if each.flop_per_byte is None else digits(each.flop_per_byte, 2),
                at_least_time(each.time_s, each.at_least_time_s),
                DASH if each.flop_per_s is None else si(each.flop_per_s, ""),
                DASH if each.bytes_per_s is None else si(each.bytes_per_s, "B"),
                *([ratio(each.utilization_ratio(seen.peaks))] if seen.peaks else []),
            ]
        )
        last = each.workload
    yield table_of(rows, words=(0, 1), wraps=(0, 1))


def launches(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.launching:
        return
    yield "How a step is cut up: launches (on a CPU: calls that would be some), and what lies between"
    rows = [["workload", "launches", "a launch", "below 10 µs", "between", "peak memory", "lives at once"]]
    spent = [step_energy_j(seen.data, mix.recording) for mix in seen.mixes]
    with_energy = any(each is not None for each in spent)
    rows[0] += ["energy a step"] if with_energy else []
    for each, mix, energy_j in zip(seen.launching, seen.mixes, spent, strict=True):
        recording = mix.recording
        rows.append(
            [
                each.workload,
                f"{each.launches:.0f}",
                DASH if each.launch_s is None else si_time(each.launch_s),
                ratio(each.small_ratio),
                percent(each.between_ratio),
                DASH if recording.peak_memory_bytes is None else si(recording.peak_memory_bytes, "B"),
                DASH if recording.live_bytes is None else si(recording.live_bytes, "B"),
                *([joules(energy_j)] if with_energy else []),
            ]
        )
    yield table_of(rows, words=(0,), wraps=(0,))


def unequal(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.tails:
        return
    yield "Times of single calls in one step: how unequal, and the law that fits best of three (distance: Kolmogorov's)"
    rows = [["workload", "calls", "median", "longest", "longest 1 %", "longest 10 %", "law", "distance"]]
    for mix, each in seen.tails:
        law = [each.fits[0].law, digits(each.fits[0].distance, 2)] if each.fits else [DASH, DASH]
        times = [si_time(each.median_s), si_time(each.longest_s)]
        rows.append([mix.label, str(each.calls), *times, percent(each.top_1_ratio), percent(each.top_10_ratio), *law])
    yield table_of(rows, words=(0, 6), wraps=(0, 6))


def reconstruction_lines(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.reconstructed:
        return
    yield "The step put together from its operations timed alone"
    rows = [["workload", "mode", "group", "calls", "distinct", "alone", "in the step", "÷", "÷ whole step"]]
    for each in seen.reconstructed:
        rows.append(
            [
                each.workload,
                each.mode,
                each.group or NO_GROUP,
                str(each.calls),
                str(each.kinds),
                at_least_time(each.alone_s, each.at_least_alone_s),
                DASH if each.recorded_s is None else si_time(each.recorded_s),
                times(each.ratio),
                "" if each.step_ratio is None else times(each.step_ratio),
            ]
        )
    yield table_of(rows, words=(0, 1, 2), wraps=(0, 1, 2))
    if untimed := {each.workload: each.untimed for each in seen.reconstructed if each.group == "all" and each.untimed}:
        text = ", ".join(f"{calls} of {workload}" for workload, calls in untimed.items())
        yield f"note: calls that could not be run again, so that sums with them are at least so much: {text}"


def other_ways(seen: CharacterizeAnswer) -> Iterator[Part]:
    """Seeds and switches: what each changes of the step."""
    rows = [["workload", "way", "step", "÷ the mix", "95 %", "energy a step"]]
    for each in ways(seen.data):
        divided = DASH if each.ratio is None else digits(each.ratio, 3)
        interval = DASH if each.low is None or each.high is None else f"{each.low:.2f} to {each.high:.2f}"
        rows.append([each.workload, each.way, si_time(each.step_s), divided, interval, joules(each.energy_j)])
    if len(rows) > 1:
        yield "Other ways to run the training step"
        yield table_of(rows, words=(0, 1), wraps=(0, 1))
