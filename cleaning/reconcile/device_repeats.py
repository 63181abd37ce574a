"""Repeats of a cell that were measured on several devices or hosts: each device's are cells of their own.

What sets a row apart (`variant`) gets the device, so that no table and no figure takes a mean over devices. Repeats on
one device, and runs of one device, are left as they are.

Not claimed: that devices of one model differ. A mean over them would hide whether they do, and its interval would be
that of no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from results.records.answers import Utilization
from results.records.cell import Run, Sitting
from results.store.layout import Key, key_of

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
