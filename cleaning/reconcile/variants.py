"""Compares variants of a step (such as two precisions), and separates repeats of a cell on several devices.

A cell is one combination of workload, batch size and precision. `variants` takes a run's rows and returns `Variant`s.
It compares each precision, layout, compile setting and optimizer of a step with the first one listed, by the statistics
of `analysis/stats/comparison.py`. `split_by_device` takes utilization rows and returns them with repeats on several
devices as separate cells. A mean over devices would hide whether the devices differ. A difference between devices may
also come from the time of day.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.stats.comparison import MARGIN_RATIO, conditions, difference
from analysis.utilization.step_times import block_means_s, whole_steps
from results.records.answers import Utilization
from results.records.cell import MEASURED, Run, Sample, SessionRow
from results.records.rows import to_text
from results.store.layout import Key, key_of

OPTIONS = {"precision": "precisions", "layout": "layout", "compile": "compile", "optimizer": "optimizer"}
"""Field of a run → the option of the sweep that lists its values; the first value is the reference."""


@dataclass(frozen=True)
class Variant:
    """One variant's steps per second ÷ those of the reference, with the 95 % interval.

    name: the variant's values that differ within the group, as "precision=tf32". first: whether it is the reference,
    the first variant of the same model and batch.
    """

    model: str
    batch_size: int
    name: str
    first: bool
    ratio: float
    low_ratio: float | None
    high_ratio: float | None


def variants(
    runs: Iterable[Run],
    samples: Mapping[Key, Sequence[Sample]],
    sessions: Iterable[SessionRow],
    options: Mapping[str, Any],
) -> tuple[Variant, ...]:
    """Compare the variants of each step that one device ran in two variants or more. options: of the run's manifest."""
    devices = {session.session: (session.host, session.device_uuid) for session in sessions}
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], list[tuple[float, ...]]]] = {}
    steps: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        if run.status not in MEASURED or not (blocks := whole_steps(samples.get(key_of(run), ()))):
            continue
        means_s = tuple(block_means_s(blocks))
        if all(0 < mean_s < math.inf for mean_s in means_s):
            step = (devices.get(run.session), *conditions(run, *OPTIONS))
            values = tuple(getattr(run, name) for name in OPTIONS)
            groups.setdefault(step, {}).setdefault(values, []).append(means_s)
            steps.setdefault(step, run)
    lists = [options.get(option) for option in OPTIONS.values()]
    rows = []
    for step, group in groups.items():
        if len(group) < 2:
            continue
        run, ordered = steps[step], sorted(group, key=lambda values: _positions(values, lists))
        margin = MARGIN_RATIO["cuda" if run.device.startswith("cuda") else "cpu"]
        for values in ordered:
            first = values == ordered[0]
            against = difference(group[ordered[0]], group[values], margin)
            low, high = (None if end is None or first else 1 / end for end in reversed(against.interval()))
            parts = [
                f"{name}={to_text(values[index])}"
                for index, name in enumerate(OPTIONS)
                if len({other[index] for other in group}) > 1
            ]
            parts += [f"parallel={run.parallel}"] if run.parallel else []
            rows.append(Variant(run.model, run.batch_size, ", ".join(parts), first, 1 / against.ratio, low, high))
    return tuple(rows)


def _positions(values: tuple[Any, ...], lists: Sequence[Any]) -> list[int]:
    """Return each value's index in the requested list."""
    return [
        requested.index(value) if isinstance(requested, list) and value in requested else 0
        for value, requested in zip(values, lists, strict=True)
    ]


DEVICE = "device="
"""Prefix of a device at the end of a variant."""


def split_by_device(
    rows: Sequence[Utilization], runs: Mapping[Key, Run], sessions: Sequence[SessionRow]
) -> tuple[Utilization, ...]:
    """Return the rows in order; the variant of repeats that ran on several devices ends with the device: its host, and
    where one host has several also the first letters of the device's hash (of its name where it has none)."""
    locations = {session.session: (session.host, session.device_uuid or session.device) for session in sessions}
    if len({*locations.values()}) < 2:
        return tuple(rows)
    alike: dict[tuple[object, ...], set[tuple[str, str]]] = {}  # what repeats have in common → where they were measured
    points = []
    for row in rows:
        run = runs.get(key_of(row))
        location = None if run is None else locations.get(run.session)
        point = row.model, row.batch_size, row.precision, row.device.partition(":")[0], row.variant
        points.append((row, point, location))
        if location is not None:
            alike.setdefault(point, set()).add(location)
    separated = []
    for row, point, location in points:
        if location is not None and len(alike[point]) > 1:
            host, device = location
            is_only = sum(other == host for other, _ in alike[point]) == 1
            name = f"{DEVICE}{host if is_only else f'{host} {device[:8]}'}"
            row = replace(row, variant=f"{row.variant}, {name}" if row.variant else name)
        separated.append(row)
    return tuple(separated)


def devices_sentence(rows: Iterable[Utilization]) -> str:
    """Return a sentence about the cells without a mean, since their repeats ran on several devices; "" without any."""
    cells, devices = set(), set()
    for row in (row for row in rows if DEVICE in row.variant):
        device = row.variant.rpartition(DEVICE)[2]
        if "," not in device:
            cells.add((row.model, row.batch_size, row.precision))
            devices.add(device)
    if not cells:
        return ""
    whose = "one cell" if len(cells) == 1 else f"{len(cells)} cells"
    return (
        f"No mean is taken over devices: repeats of {whose} were measured on {', '.join(sorted(devices))}, and have a "
        "row and a point for each."
    )
