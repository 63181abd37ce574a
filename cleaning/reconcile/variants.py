"""How fast is each variant of a training step: precision, layout, compile setting and optimizer against the first ones.

The ratio and its interval are those of two cells in `analysis/stats/comparison.py`. Not claimed: what processes and
hours differ by, where a cell was not repeated.

Repeats of a cell that were measured on several devices or hosts: each device's are cells of their own.

What sets a row apart (`variant`) gets the device, so that no table and no figure takes a mean over devices. Repeats on
one device, and runs of one device, are left as they are.

Not claimed: that devices of one model differ. A mean over them would hide whether they do, and its interval would be
that of no device.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.stats.comparison import MARGIN_RATIO, conditions, difference
from analysis.utilization.step_times import block_means_s, whole_steps
from results.records.answers import Utilization
from results.records.cell import Run, Sample, Sitting
from results.records.rows import MEASURED, to_text
from results.store.layout import Key, key_of

OPTIONS = {"precision": "precisions", "layout": "layout", "compile": "compile", "optimizer": "optimizer"}
"""Parameter that sets a variant apart → the option whose list has its values, the first one first."""

Times = list[tuple[float, ...]]


@dataclass(frozen=True)
class Variant:
    """Steps per second ÷ those of the first variant of the same model and batch, with the 95 % interval.

    name: what sets it apart from the others. first: whether it is the one that they are divided by.
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
    sittings: Iterable[Sitting],
    options: Mapping[str, Any],
) -> tuple[Variant, ...]:
    """Of each step that was measured in several variants on one device. options: of the run's manifest."""
    devices = {each.sitting: (each.host, each.device_uuid) for each in sittings}
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Times]] = {}
    steps: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        if run.status not in MEASURED or not (blocks := whole_steps(samples.get(key_of(run), ()))):
            continue
        means_s = tuple(block_means_s(blocks))
        if all(0 < mean_s < math.inf for mean_s in means_s):
            step = (devices.get(run.sitting), *conditions(run, *OPTIONS))
            values = tuple(getattr(run, name) for name in OPTIONS)
            groups.setdefault(step, {}).setdefault(values, []).append(means_s)
            steps.setdefault(step, run)
    return tuple(
        row for step, group in groups.items() if len(group) > 1 for row in _of_step(steps[step], group, options)
    )


def _of_step(run: Run, group: Mapping[tuple[Any, ...], Times], options: Mapping[str, Any]) -> list[Variant]:
    ordered = sorted(group, key=lambda values: _places(values, options))
    differing = [place for place in range(len(OPTIONS)) if len({values[place] for values in group}) > 1]
    margin = MARGIN_RATIO["cuda" if run.device.startswith("cuda") else "cpu"]
    rows = []
    for values in ordered:
        first = values == ordered[0]
        found = difference(group[ordered[0]], group[values], margin)
        low, high = (None if end is None or first else 1 / end for end in reversed(found.interval()))
        parts = [f"{[*OPTIONS][place]}={to_text(values[place])}" for place in differing]
        parts += [f"parallel={run.parallel}"] if run.parallel else []
        rows.append(Variant(run.model, run.batch_size, ", ".join(parts), first, 1 / found.ratio, low, high))
    return rows


def _places(values: tuple[Any, ...], options: Mapping[str, Any]) -> list[int]:
    """Where each value stands in the list that was asked for."""
    lists = [options.get(option) for option in OPTIONS.values()]
    return [
        every.index(value) if isinstance(every, list) and value in every else 0
        for value, every in zip(values, lists, strict=True)
    ]


DEVICE = "device="
"""Before a device, at the end of a variant."""

LETTERS = 8
"""Of a device's hash."""

Place = tuple[str, str]
"""Host, and the device's hash, or its name where it has none."""


def kept_apart(
    rows: Sequence[Utilization], runs: Mapping[Key, Run], sittings: Sequence[Sitting]
) -> tuple[Utilization, ...]:
    """The rows in their order, those of repeats on several devices with the device in their variant."""
    of_sitting = {each.sitting: (each.host, each.device_uuid or each.device) for each in sittings}
    if len({*of_sitting.values()}) < 2:
        return tuple(rows)
    places: dict[tuple[object, ...], set[Place]] = {}
    for row in rows:
        if place := _place(row, runs, of_sitting):
            places.setdefault(_point(row), set()).add(place)
    several = {point for point, found in places.items() if len(found) > 1}
    if not several:
        return tuple(rows)
    return tuple(
        replace(row, variant=_with_device(row.variant, place, places[_point(row)]))
        if _point(row) in several and (place := _place(row, runs, of_sitting))
        else row
        for row in rows
    )


def devices_sentence(rows: Iterable[Utilization]) -> str:
    """Which cells have no mean over their repeats, because these were on several devices; "" where none were."""
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


def _place(row: Utilization, runs: Mapping[Key, Run], of_sitting: Mapping[str, Place]) -> Place | None:
    run = runs.get(key_of(row))
    return None if run is None else of_sitting.get(run.sitting)


def _point(row: Utilization) -> tuple[object, ...]:
    """What repeats have in common."""
    return row.model, row.batch_size, row.precision, row.device.partition(":")[0], row.variant


def _with_device(variant: str, place: Place, others: set[Place]) -> str:
    """The variant and the device: its host where that tells it from the others, else its hash, too."""
    host, device = place
    alone = sum(other[0] == host for other in others) == 1
    name = host if alone else f"{host} {device[:LETTERS]}"
    return ", ".join(filter(None, (variant, f"{DEVICE}{name}")))
