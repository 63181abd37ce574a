"""What a workload's steps are made of: the share of each operation type and of each of Fathom's groups.

A step's time is the time of its operations and the time between them (group H), so that its shares add up to 1. Of the
profiled steps the first and the last are left out (Fathom's protocol: 12 steps, 10 kept), and a type's share is its
*median* over the kept steps: one step in which somebody else had the processor moves no median. Medians need not add up
to 1; they are divided by their sum, which `sum_ratio` tells. Intervals of groups are order statistics over the steps.

Operations of a name are placed by `analysis/characterize/fathom_groups.py`; what has no group is `unclassified`, a
share of its own.

How similar workloads are by what their time goes to: cosine distance, and clusters by true centroid linkage.

A workload is a vector of shares, one an operation type. The distance of two is 1 - cos of the angle between them, so
that the whole time does not count. A cluster is the mean of its members' vectors *as they are*, and its distance to
another is that between the two means (Adolf et al., IISWC 2016, section V-C: "centroid linkage" on cosine distance).

Not claimed: that a height may not lie below an earlier one. Centroid linkage can invert; `inverted` says where.
scipy's `linkage(…, "centroid")` is of Euclidean distances: on cosine ones it runs and is wrong, and on vectors made
one long its clusters' means are not one long. It is not used here; its dendrogram takes `matrix`.

Pictures compare variants of workloads: as coded, and as in the paper.
A picture has every workload once, in the variant that it is of, or in the only one that was recorded of it. So two
pictures differ by the variants alone, and not by who is in them.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.characterize.fathom_groups import GROUPS, OPERATIONS, UNCLASSIFIED, group_of, type_of
from analysis.stats.summary import median_interval
from results.records.characterization import (
    PLAIN,
    PROFILED,
    Characterization,
    OperationTime,
    RecordedStep,
    WorkloadRecording,
)

BETWEEN = "between operations"
"""The type that group H consists of."""


@dataclass(frozen=True)
class TypeShare:
    """One operation type. share_ratio: of the step; time_s, calls, launches: of a step, medians."""

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

    unclassified: name → share of the step. sum_ratio: what the medians added up to. step_s: the median step without a
    profiler, or None; profiled_s: under one.
    """

    recording: WorkloadRecording
    label: str
    types: tuple[TypeShare, ...]
    groups: Mapping[str, Share]
    unclassified: Mapping[str, float]
    sum_ratio: float
    steps: int
    step_s: float | None
    profiled_s: float

    @property
    def unclassified_ratio(self) -> float:
        return sum(self.unclassified.values())

    @property
    def operations(self) -> tuple[TypeShare, ...]:
        """The types without the time between them."""
        return tuple(each for each in self.types if each.group != "H")

    @property
    def dominant(self) -> str:
        """The group of operations with the largest share."""
        return max(OPERATIONS, key=lambda group: self.groups[group].ratio)


def inner_steps(steps: Sequence[RecordedStep]) -> list[RecordedStep]:
    """Without the first and the last, where three are left at least."""
    ordered = sorted(steps, key=lambda step: step.step)
    return ordered[1:-1] if len(ordered) >= 5 else ordered


def steps_of(data: Characterization, recording: int, part: str) -> list[RecordedStep]:
    """The steps of one part that count."""
    return inner_steps([step for step in data.steps if step.recording == recording and step.part == part])


def step_s(data: Characterization, recording: int) -> float | None:
    """The median step without a profiler; None where none was timed. Steps under one are longer, and no stand-in."""
    times = [step.time_s for step in steps_of(data, recording, PLAIN)]
    return statistics.median(times) if times else None


def mix(data: Characterization, recording: WorkloadRecording, label: str = "") -> Mix | None:
    """The shares of one recording; None where none of its steps was profiled. A step of which is not known how long its
    operations took is no part of them."""
    steps = {s.step: s for s in steps_of(data, recording.recording, PROFILED) if s.operations_s is not None}
    rows = [row for row in data.times if row.recording == recording.recording and row.step in steps]
    if not steps or not rows:
        return None
    by_type = _by_type(rows)
    lengths = {number: step.time_s for number, step in steps.items()}
    between = {number: step.time_s - (step.operations_s or 0.0) for number, step in steps.items()}
    medians = {key: _median_share(cells, lengths) for key, cells in by_type.items()}
    rest = statistics.median(between[number] / lengths[number] for number in lengths)
    total = sum(medians.values()) + rest
    types = [_type_share(key, medians[key] / total, cells, lengths) for key, cells in by_type.items()]
    types.sort(key=lambda each: (-each.share_ratio, each.name))
    idle = TypeShare(BETWEEN, "H", rest / total, statistics.median(between.values()), 0.0, 0.0)
    return Mix(
        recording=recording,
        label=label or recording.workload,
        types=(*types, idle),
        groups=_groups(by_type, between, lengths, (*types, idle)),
        unclassified={each.name: each.share_ratio for each in types if each.group == UNCLASSIFIED},
        sum_ratio=total,
        steps=len(steps),
        step_s=statistics.median(plain) if (plain := _times(data, recording)) else None,
        profiled_s=statistics.median(lengths.values()),
    )


def _times(data: Characterization, recording: WorkloadRecording) -> list[float]:
    return [step.time_s for step in steps_of(data, recording.recording, PLAIN)]


_Cells = dict[int, list[float]]
"""Step → (time in s, calls, launches)."""


def _by_type(rows: Iterable[OperationTime]) -> dict[tuple[str, str], _Cells]:
    found: dict[tuple[str, str], _Cells] = {}
    for row in rows:
        placed = group_of(row.name, row.scope, row.tags)
        key = (type_of(row.name, row.scope, row.optimizer), placed.group)
        cell = found.setdefault(key, {}).setdefault(row.step, [0.0, 0.0, 0.0])
        for place, value in enumerate((row.time_s, row.calls, row.launches)):
            cell[place] += value
    return found


def _values(cells: _Cells, lengths: Mapping[int, float], place: int) -> list[float]:
    return [cells.get(number, [0.0, 0.0, 0.0])[place] for number in lengths]


def _median_share(cells: _Cells, lengths: Mapping[int, float]) -> float:
    times = _values(cells, lengths, 0)
    return statistics.median(time / length for time, length in zip(times, lengths.values(), strict=True))


def _type_share(key: tuple[str, str], ratio: float, cells: _Cells, lengths: Mapping[int, float]) -> TypeShare:
    time, calls, launches = (statistics.median(_values(cells, lengths, place)) for place in range(3))
    return TypeShare(key[0], key[1], ratio, time, calls, launches)


def _groups(
    by_type: Mapping[tuple[str, str], _Cells],
    between: Mapping[int, float],
    lengths: Mapping[int, float],
    types: Sequence[TypeShare],
) -> dict[str, Share]:
    """A group's share is the sum of its types'; its interval that of the steps' own sums."""
    each_step: dict[str, dict[int, float]] = {group: defaultdict(float) for group in GROUPS}
    for (_, group), cells in by_type.items():
        if group:
            for number, cell in cells.items():
                each_step[group][number] += cell[0]
    each_step["H"] = dict(between)
    found = {}
    for group in GROUPS:
        ratio = sum(each.share_ratio for each in types if each.group == group)
        interval = median_interval([each_step[group].get(number, 0.0) / lengths[number] for number in lengths])
        low, high = (None, None) if interval is None else (min(interval[0], ratio), max(interval[2], ratio))
        found[group] = Share(ratio, low, high)
    return found


def types_for(shares: Iterable[float], ratio: float = 0.9) -> int:
    """How many operation types, the largest first, make this part of their sum. Raises ValueError without any."""
    ordered = sorted(shares, reverse=True)
    total = sum(ordered)
    if not total > 0:
        raise ValueError("expected at least one share above 0")
    reached = 0.0
    for count, share in enumerate(ordered, 1):
        reached += share
        if reached >= ratio * total * (1 - 1e-12):
            return count
    return len(ordered)


def cumulative(shares: Iterable[float]) -> list[float]:
    """The part that the largest, the two largest, … make of their sum."""
    ordered = sorted(shares, reverse=True)
    total = sum(ordered)
    reached, found = 0.0, []
    for share in ordered:
        reached += share
        found.append(reached / total)
    return found


def vectors(mixes: Sequence[Mix]) -> dict[str, tuple[float, ...]]:
    """Label → shares by operation type, time between operations left out as in the paper, for
    `analysis/characterize/operation_mix.py`.

    A type has a place of its own for each group, the same for all workloads.
    """
    columns = sorted({(each.group, each.name) for mix in mixes for each in mix.operations})
    found = {}
    for each in mixes:
        shares = {(one.group, one.name): one.share_ratio for one in each.operations}
        found[each.label] = tuple(shares.get(column, 0.0) for column in columns)
    return found


def labels(recordings: Sequence[WorkloadRecording]) -> dict[int, str]:
    """Recording → the workload's name, and what sets it apart from others of the same name."""
    parts = {
        each.recording: {
            "variant": each.variant,
            "mode": each.mode,
            "batch_size": f"batch {each.batch_size}",
            "device": each.device,
            "threads": "" if each.threads is None else f"{each.threads} threads",
            "precision": each.precision,
            "layout": each.layout,
            "execution": each.execution,
            "seed": f"seed {each.seed}",
            "repeat": f"repeat {each.repeat}",
        }
        for each in recordings
    }
    found = {}
    for each in recordings:
        others = [parts[other.recording] for other in recordings if other.workload == each.workload]
        differing = [key for key, value in parts[each.recording].items() if any(o[key] != value for o in others)]
        words = [parts[each.recording][key] for key in differing]
        found[each.recording] = " ".join([each.workload, *filter(None, words)])
    return found


@dataclass(frozen=True)
class Merge:
    """Two clusters become one. left, right: their members, those named first on the left; height: their distance."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    height: float

    @property
    def members(self) -> tuple[str, ...]:
        return self.left + self.right


@dataclass(frozen=True)
class _Cluster:
    members: tuple[str, ...]
    total: tuple[float, ...]  # sum of the members' vectors: 1 - cos does not see by what it is divided


def cosine_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """1 - cos of the angle between two vectors: 0 the same direction, 1 nothing in common.

    Raises ValueError for vectors of different lengths, or one of zeros, which has no direction.
    """
    if len(left) != len(right):
        raise ValueError(f"expected vectors of one length, got {len(left)} and {len(right)}")
    lengths = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(y * y for y in right))
    if lengths == 0:
        raise ValueError("expected vectors with a direction, got one of zeros")
    return max(0.0, 1 - math.fsum(x * y for x, y in zip(left, right, strict=True)) / lengths)


def centroid_linkage(vectors: Mapping[str, Sequence[float]]) -> list[Merge]:
    """The merges of all into one cluster, the nearest pair first; of pairs as near the one named first.

    vectors: name → shares, all of one length. Raises ValueError as `cosine_distance` does.
    """
    clusters = [_Cluster((name,), tuple(map(float, vector))) for name, vector in vectors.items()]
    merges = []
    while len(clusters) > 1:
        pairs = [(i, j) for i in range(len(clusters)) for j in range(i + 1, len(clusters))]
        i, j = min(pairs, key=lambda pair: _between(clusters[pair[0]], clusters[pair[1]]))
        left, right = clusters[i], clusters[j]
        merges.append(Merge(left.members, right.members, _between(left, right)))
        total = tuple(x + y for x, y in zip(left.total, right.total, strict=True))
        clusters[i] = _Cluster(left.members + right.members, total)
        del clusters[j]
    return merges


def _between(left: _Cluster, right: _Cluster) -> float:
    return cosine_distance(left.total, right.total)


def matrix(names: Sequence[str], merges: Sequence[Merge]) -> list[tuple[float, float, float, float]]:
    """The merges as scipy's `dendrogram` takes them: two clusters' numbers, height, members. names: 0, 1, … there."""
    numbers: dict[frozenset[str], int] = {frozenset((name,)): number for number, name in enumerate(names)}
    rows = []
    for number, merge in enumerate(merges, len(names)):
        rows.append(
            (
                float(numbers[frozenset(merge.left)]),
                float(numbers[frozenset(merge.right)]),
                merge.height,
                float(len(merge.members)),
            )
        )
        numbers[frozenset(merge.members)] = number
    return rows


def inverted(merges: Sequence[Merge]) -> list[Merge]:
    """Merges below the height of one that made a part of them: a dendrogram of these crosses itself."""
    heights: dict[frozenset[str], float] = {}
    found = []
    for merge in merges:
        parts = (frozenset(merge.left), frozenset(merge.right))
        if any(heights.get(part, 0.0) > merge.height for part in parts):
            found.append(merge)
        heights[frozenset(merge.members)] = merge.height
    return found


def pictures(mixes: Sequence[Mix]) -> dict[str, list[Mix]]:
    """Variant → the mixes of its picture, labelled without the variant; empty where no workload has two
    variants, or where there is no other workload.

    mixes: those that stand for their workloads (`analysis/characterize/summary.py`, `comparable_mixes`).
    """
    forms: dict[str, dict[str, Mix]] = {}
    for each in mixes:
        variant = each.recording.variant
        forms.setdefault(
            each.recording.workload.replace(f"@{variant}", "") if variant else each.recording.workload, {}
        )[each.recording.variant] = each
    if len(forms) < 2:
        return {}
    several = dict.fromkeys(variant for mine in forms.values() if len(mine) > 1 for variant in mine)
    return {
        variant: [replace(mine.get(variant) or next(iter(mine.values())), label=name) for name, mine in forms.items()]
        for variant in several
    }
