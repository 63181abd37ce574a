"""Computes the share of each operation type and Fathom group in a workload's step, and the similarity of workloads.

`mix` takes a characterization and one of its recordings, and returns a `Mix`. A step's time is that of its operations
and the time between them (group H, added to Fathom's A to G). The first and last profiled steps are left out, which is
Fathom's protocol (Adolf et al., IISWC 2016, section V-C). A type's share is its *median* over the other steps ÷ the sum
of the medians, so that one disturbed step changes nothing. `centroid_linkage` takes vectors of shares and clusters
workloads by the cosine distance of centroids. A centroid is the mean of its members' vectors *as they are*. Centroids
can invert: a merge may be at a smaller distance than an earlier one, and the report says where. scipy's "centroid"
linkage is for Euclidean distances. So the linkage is computed here, and scipy only draws the dendrogram from `matrix`.
"""

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from analysis.characterize.fathom_groups import GROUPS, OPERATIONS, UNCLASSIFIED, group_of, type_of
from analysis.operators.registry import kind_of
from analysis.stats.summary import median_interval
from results.records.characterization import (
    PLAIN,
    PROFILED,
    Characterization,
    RecordedStep,
    WorkloadRecording,
)

BETWEEN = "between operations"
"""Name of the only type in group H."""


@dataclass(frozen=True)
class TypeShare:
    """One operation type. share_ratio: its share of the step; time_s, calls, launches: medians over the steps."""

    name: str
    group: str
    share_ratio: float
    time_s: float
    calls: float
    launches: float


@dataclass(frozen=True)
class Share:
    """A share of the step, with a 95 % interval of the median over the steps; None below six steps."""

    ratio: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Mix:
    """The shares of one recording. types: the largest first, time between operations last. groups: A to H, all.

    unclassified: name → share of the step. step_s: median step without the profiler, or None; profiled_s: under it.
    """

    recording: WorkloadRecording
    label: str
    types: tuple[TypeShare, ...]
    groups: Mapping[str, Share]
    unclassified: Mapping[str, float]
    steps: int
    step_s: float | None
    profiled_s: float

    @property
    def unclassified_ratio(self) -> float:
        return sum(self.unclassified.values())

    @property
    def operations(self) -> tuple[TypeShare, ...]:
        """The types without the time between them."""
        return tuple(share for share in self.types if share.group != "H")

    @property
    def dominant(self) -> str:
        """The group of operations with the largest share."""
        return max(OPERATIONS, key=lambda group: self.groups[group].ratio)


def inner_steps(steps: Sequence[RecordedStep]) -> list[RecordedStep]:
    """Return the steps without the first and the last, where at least three are left."""
    ordered = sorted(steps, key=lambda step: step.step)
    return ordered[1:-1] if len(ordered) >= 5 else ordered


def steps_of(data: Characterization, recording: int, part: str) -> list[RecordedStep]:
    """Return the steps of one part ("plain" or "profiled") of a recording, by `inner_steps`."""
    return inner_steps([step for step in data.steps if step.recording == recording and step.part == part])


def step_s(data: Characterization, recording: int) -> float | None:
    """Return the median step without a profiler; None where none was timed, as steps under the profiler are longer."""
    times = [step.time_s for step in steps_of(data, recording, PLAIN)]
    return statistics.median(times) if times else None


def type_table(
    data: Characterization, recording: int, steps: Collection[int], views: bool = True
) -> dict[str, pd.DataFrame]:
    """Return time_s, calls and launches, each of (operation type, group) × step; 0 where a type was not called.

    views: whether calls that only return a view of a tensor are included.
    """
    rows = [
        (type_of(row.name, row.scope, row.optimizer), group_of(row.name, row.scope, row.tags),
         row.step, row.time_s, row.calls, row.launches)
        for row in data.times
        if row.recording == recording
        and row.step in steps
        and (views or kind_of(row.name.replace("::", ".")) != "view")
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["type", "group", "step", "time_s", "calls", "launches"])
    pivot = partial(frame.pivot_table, index=["type", "group"], columns="step", aggfunc="sum", sort=False)
    tables = {value: pivot(values=value).reindex(columns=sorted(steps)) for value in ("time_s", "calls", "launches")}
    return {value: table.fillna(0.0).astype(float) for value, table in tables.items()}


def mix(data: Characterization, recording: WorkloadRecording, label: str = "") -> Mix | None:
    """Return the shares of one recording; None where none of its steps was profiled. Steps without a time of their
    operations are left out."""
    steps = [s for s in steps_of(data, recording.recording, PROFILED) if s.operations_s is not None]
    table = type_table(data, recording.recording, [step.step for step in steps])
    if not steps or table["time_s"].empty:
        return None
    between = [step.time_s - (step.operations_s or 0.0) for step in steps]
    shares = table["time_s"].copy()
    shares.loc[(BETWEEN, "H"), :] = between
    shares /= [step.time_s for step in steps]
    ratios = shares.median(axis=1) / shares.median(axis=1).sum()
    middle = {value: rows.median(axis=1) for value, rows in table.items()}
    types = [
        TypeShare(*key, *(float(of[key]) for of in (ratios, middle["time_s"], middle["calls"], middle["launches"])))
        for key in table["time_s"].index
    ]
    types.sort(key=lambda share: (-share.share_ratio, share.name))
    idle = TypeShare(BETWEEN, "H", float(ratios[BETWEEN, "H"]), statistics.median(between), 0.0, 0.0)
    return Mix(
        recording=recording,
        label=label or recording.workload,
        types=(*types, idle),
        groups=_groups(shares, ratios),
        unclassified={share.name: share.share_ratio for share in types if share.group == UNCLASSIFIED},
        steps=len(steps),
        step_s=step_s(data, recording.recording),
        profiled_s=statistics.median(step.time_s for step in steps),
    )


def _groups(shares: pd.DataFrame, ratios: pd.Series) -> dict[str, Share]:
    """Return the groups' shares. A group's share is the sum of its types' shares. Its interval is that of the median of
    the steps' sums, extended to include the share."""
    by_step = shares.groupby("group").sum().reindex(list(GROUPS), fill_value=0.0)
    by_group = ratios.groupby("group").sum().reindex(list(GROUPS), fill_value=0.0)
    groups = {}
    for group in GROUPS:
        ratio, interval = float(by_group[group]), median_interval(by_step.T[group].tolist())
        low, high = (None, None) if interval is None else (min(interval[0], ratio), max(interval[2], ratio))
        groups[group] = Share(ratio, low, high)
    return groups


def types_for(shares: Iterable[float], ratio: float = 0.9) -> int | None:
    """Return how many operation types, the largest first, make up this part of their sum; None where none has a
    share."""
    sums = list(itertools.accumulate(sorted(shares, reverse=True)))
    if not sums or not sums[-1] > 0:
        return None
    return 1 + sum(reached / sums[-1] < ratio * (1 - 1e-12) for reached in sums)


def vectors(mixes: Sequence[Mix]) -> dict[str, tuple[float, ...]]:
    """Return label → shares by operation type, time between operations left out as in the paper.

    Each (group, type) has the same index for all workloads.
    """
    columns = sorted({(share.group, share.name) for mix in mixes for share in mix.operations})
    shares = {mix.label: {(share.group, share.name): share.share_ratio for share in mix.operations} for mix in mixes}
    return {label: tuple(ratios.get(column, 0.0) for column in columns) for label, ratios in shares.items()}


LABELS = {
    "variant": "{}", "mode": "{}", "batch_size": "batch {}", "device": "{}", "threads": "{} threads",
    "precision": "{}", "layout": "{}", "execution": "{}", "seed": "seed {}", "repeat": "repeat {}",
}  # fmt: skip
"""Field that may distinguish recordings of one workload → its text in a label."""


def labels(recordings: Sequence[WorkloadRecording]) -> dict[int, str]:
    """Return recording → the workload's name and what distinguishes it from others of that name."""
    names = {}
    for recording in recordings:
        others = [other for other in recordings if other.workload == recording.workload]
        parts = [recording.workload]
        for field, text in LABELS.items():
            value = getattr(recording, field)
            if value not in ("", None) and any(getattr(other, field) != value for other in others):
                parts.append(text.format(value))
        names[recording.recording] = " ".join(parts)
    return names


@dataclass(frozen=True)
class Merge:
    """The union of two clusters. left, right: their members; height: distance between the two."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    height: float

    @property
    def members(self) -> tuple[str, ...]:
        return self.left + self.right


def cosine_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """Return 1 - cos of the angle between two vectors that are not 0: 0 for equal directions, 1 for right angles."""
    lengths = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(y * y for y in right))
    return max(0.0, 1 - math.fsum(x * y for x, y in zip(left, right, strict=True)) / lengths)


def centroid_linkage(vectors: Mapping[str, Sequence[float]]) -> list[Merge]:
    """Return the merges of all vectors into one cluster, the nearest pair first; on a tie the pair that comes first.

    vectors: name → shares, all of one length; a vector of zeros is not allowed.
    """
    members: list[tuple[str, ...]] = [(name,) for name in vectors]
    sums = [list(map(float, vector)) for vector in vectors.values()]  # the cosine of sums is that of means
    merges: list[Merge] = []
    while len(sums) > 1:
        pairs = itertools.combinations(range(len(sums)), 2)
        height, i, j = min((cosine_distance(sums[i], sums[j]), i, j) for i, j in pairs)
        merges.append(Merge(members[i], members[j], height))
        members[i] = merges[-1].members
        sums[i] = [x + y for x, y in zip(sums[i], sums[j], strict=True)]
        del members[j], sums[j]
    return merges


def matrix(names: Sequence[str], merges: Sequence[Merge]) -> list[tuple[float, float, float, float]]:
    """Return the merges as scipy's `dendrogram` takes them: numbers of two clusters, height, number of members. names:
    of clusters 0, 1, …."""
    clusters = [frozenset((name,)) for name in names] + [frozenset(merge.members) for merge in merges]
    numbers = {members: float(number) for number, members in enumerate(clusters)}
    return [
        (numbers[frozenset(merge.left)], numbers[frozenset(merge.right)], merge.height, float(len(merge.members)))
        for merge in merges
    ]


def pictures(mixes: Sequence[Mix]) -> dict[str, list[Mix]]:
    """Return variant → the mixes of its picture, labelled without the variant; empty where no workload has two
    variants, or where there is no other workload.

    mixes: those that stand for their workloads (`analysis/characterize/summary.py`, `comparable_mixes`).
    """
    forms: dict[str, dict[str, Mix]] = {}
    for mix in mixes:
        variant = mix.recording.variant
        name = mix.recording.workload.replace(f"@{variant}", "") if variant else mix.recording.workload
        forms.setdefault(name, {})[variant] = mix
    if len(forms) < 2:
        return {}
    variants = dict.fromkeys(variant for form in forms.values() if len(form) > 1 for variant in form)
    return {
        variant: [replace(form.get(variant) or next(iter(form.values())), label=name) for name, form in forms.items()]
        for variant in variants
    }
