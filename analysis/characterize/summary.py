"""Computes the tables of a characterization: mixes, similarity, training and inference, cost by group, reconstruction.

Each function takes a `Characterization`, or its mixes (the share of each operation type in a step). It returns the rows
of one table. No function reads a file or a device. The time of a step is the median of the plain steps, which run
without the profiler. The FLOP and bytes of a Fathom group are exact and unfused; its time is measured under the
profiler. `reconstructed` computes the "direct reconstruction" of Fathom's tools: Σ over distinct calls of count × time,
each call timed alone. Where this sum is below the recorded step, operations take longer in the step than alone.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from analysis.characterize.fathom_groups import OPERATIONS, STEP, UNCLASSIFIED, group_of
from analysis.characterize.operation_mix import (
    Merge,
    Mix,
    centroid_linkage,
    labels,
    mix,
    step_s,
    steps_of,
    type_table,
    vectors,
)
from analysis.characterize.stationarity import stationarity
from analysis.operators.traffic import UNSIZED
from results.records.characterization import (
    PLAIN,
    PROFILED,
    AloneTime,
    Characterization,
    OperationTypeCost,
    WorkloadRecording,
)

Row = dict[str, Any]
"""A row of a derived table, by column; what is not known is None."""

T = TypeVar("T", AloneTime, OperationTypeCost)


def ok(data: Characterization, *whys: str) -> list[WorkloadRecording]:
    """Return the successful recordings whose `why` is one of `whys`, such as "mix" or "threads"."""
    return [recording for recording in data.recordings if recording.status == "ok" and recording.why in whys]


def mixes(data: Characterization) -> list[Mix]:
    """Return the mix of every recording that has one, with its label."""
    recordings = ok(data, "mix")
    names = labels(recordings)
    shares = (mix(data, recording, names[recording.recording]) for recording in recordings)
    return [share for share in shares if share is not None]


def comparable_mixes(mixes: Sequence[Mix]) -> list[Mix]:
    """Return the mixes that are compared between workloads: those on the first mix's device of training, or of
    inference if no mix is of training."""
    if not mixes:
        return []
    mode = "training" if any(mix.recording.mode == "training" for mix in mixes) else "inference"
    device = mixes[0].recording.device
    chosen = [mix for mix in mixes if (mix.recording.mode, mix.recording.device) == (mode, device)]
    names = labels([mix.recording for mix in chosen])
    return [replace(mix, label=names[mix.recording.recording]) for mix in chosen]


def linkage(mixes: Sequence[Mix]) -> list[Merge]:
    """Return the merges of workloads by their shares of operation types; a mix without operations is left out."""
    return centroid_linkage({label: vector for label, vector in vectors(mixes).items() if any(vector)})


def training_against_inference(data: Characterization) -> list[Row]:
    """Return each mode on each device, Fathom's Figure 5: a workload's median step, and its ratio to CPU training."""
    steps = [(r, time_s) for r in ok(data, "mix") if (time_s := step_s(data, r.recording)) is not None]
    cpu = {r.workload: time_s for r, time_s in steps if (r.mode, r.device) == ("training", "cpu")}
    return [
        {
            "workload": r.workload,
            "mode": r.mode,
            "device": r.device,
            "step_s": time_s,
            "ratio": time_s / cpu[r.workload] if r.workload in cpu else None,
        }
        for r, time_s in steps
    ]


def steadiness(data: Characterization) -> list[tuple[WorkloadRecording, Row]]:
    """Return the stationarity of the plain steps of each mix."""
    times = [(r, [step.time_s for step in steps_of(data, r.recording, PLAIN)]) for r in ok(data, "mix")]
    return [(recording, stationarity(times_s)) for recording, times_s in times if times_s]


def _by_group(rows: Sequence[T], recording: WorkloadRecording) -> dict[str, list[T]]:
    """Return a recording's rows by group, "" for unclassified ones. All of an optimizer is F."""
    groups: dict[str, list[T]] = {group: [] for group in (*OPERATIONS, UNCLASSIFIED)}
    for row in rows:
        if row.recording == recording.recording:
            groups[group_of(row.name, STEP if row.phase == "optimizer" else "")].append(row)
    return {group: in_group for group, in_group in groups.items() if in_group}


def group_costs(data: Characterization, peaks: Mapping[str, float]) -> list[Row]:
    """Return the FLOP, bytes and time by group, of every training mix whose operations were counted. peaks: unit →
    FLOP/s.

    time_s: mean over the joined steps; None where calls have no time (`untimed_calls`); at_least_time_s is that of the
    others. model_flop, other_flop: None where calls of the group have no formula (`unknown_calls`); at_least_flop is
    then that of the others, both sorts together. bytes: None where calls write what has no known size
    (`unsized_calls`). utilization_ratio: time that the products would take at their units' peaks ÷ time_s.
    """
    return [
        _group_cost(recording.workload, group, rows, peaks)
        for recording in ok(data, "mix")
        if recording.mode == "training"
        for group, rows in _by_group(data.costs, recording).items()
    ]


def _group_cost(workload: str, group: str, rows: Sequence[OperationTypeCost], peaks: Mapping[str, float]) -> Row:
    """Return the sum over a group's rows; FLOP are None if one of them has no formula."""
    times = [row.time_s for row in rows if row.time_s is not None]
    model, other = sum(row.model_flop for row in rows), sum(row.other_flop for row in rows)
    nbytes = sum(row.read_bytes + row.written_bytes for row in rows)
    unknown = sum(row.calls for row in rows if not row.kind)
    untimed = sum(row.calls if row.time_s is None else row.untimed_calls for row in rows)
    unsized = sum(row.calls for row in rows if row.name.removesuffix("_backward") in UNSIZED)
    flop, time_s = None if unknown else model + other, None if untimed else sum(times)
    by_unit: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.model_flop:
            by_unit[row.unit] += row.model_flop
    has_peaks = by_unit.keys() <= peaks.keys() and by_unit and not unknown
    return {
        "workload": workload,
        "group": group,
        "calls": sum(row.calls for row in rows),
        "model_flop": None if unknown else model,
        "other_flop": None if unknown else other,
        "bytes": None if unsized else nbytes,
        "time_s": time_s,
        "flop_by_unit": dict(by_unit),
        "at_least_flop": model + other,
        "unknown_calls": unknown,
        "at_least_time_s": sum(times) if times else None,
        "untimed_calls": untimed,
        "unsized_calls": unsized,
        "at_least_bytes": nbytes,
        "flop_per_byte": None if flop is None or not nbytes or unsized else flop / nbytes,
        "flop_per_s": flop / time_s if flop is not None and time_s else None,
        "bytes_per_s": nbytes / time_s if time_s and not unsized else None,
        "utilization_ratio": sum(n / peaks[unit] for unit, n in by_unit.items()) / time_s
        if time_s and has_peaks
        else None,
    }


def reconstructed(data: Characterization) -> list[Row]:
    """Reconstruct times by group, then all together ("all"), of every recording whose operations were timed alone.

    alone_s: Σ over distinct calls of count × time alone; None where calls could not be run alone (`untimed`);
    at_least_alone_s is the sum of the others. kinds: number of distinct calls. recorded_s: None without a profiled
    step. step_ratio: alone_s of "all" ÷ the whole step without the profiler.
    """
    parts = []
    for recording in ok(data, "mix"):
        if not (groups := _by_group(data.alone_times, recording)):
            continue
        steps = [step.step for step in steps_of(data, recording.recording, PROFILED)]
        times = type_table(data, recording.recording, steps, views=False)["time_s"].groupby("group").sum()
        middles = dict(zip(times.index, times.median(axis=1).tolist(), strict=True))
        recorded_s = {group: middles.get(group, 0.0) if steps else None for group in groups}
        parts += [_reconstructed(recording, group, rows, recorded_s[group]) for group, rows in groups.items()]
        rows = [row for rows in groups.values() for row in rows]
        whole = _reconstructed(recording, "all", rows, sum(filter(None, recorded_s.values())) if steps else None)
        step = step_s(data, recording.recording)
        ratio = whole["alone_s"] / step if step and whole["alone_s"] is not None else None
        parts.append(whole | {"step_ratio": ratio})
    return parts


def _reconstructed(
    recording: WorkloadRecording, group: str, rows: Sequence[AloneTime], recorded_s: float | None
) -> Row:
    known_s = sum(row.calls * row.time_s for row in rows if row.time_s is not None)
    untimed = sum(row.calls for row in rows if row.time_s is None)
    return {
        "workload": recording.workload,
        "mode": recording.mode,
        "group": group,
        "calls": sum(row.calls for row in rows),
        "kinds": len(rows),
        "alone_s": None if untimed else known_s,
        "recorded_s": recorded_s,
        "untimed": untimed,
        "step_ratio": None,
        "at_least_alone_s": known_s,
        "ratio": known_s / recorded_s if recorded_s and not untimed else None,
    }
