"""The limits that a step is compared with, made of rows of ceilings.csv: of one device, with the source of each figure.

Rows may come from a sweep or from `runners.ceiling`. The rate of memory is the best of copy and triad with operands
beyond the last cache; a launch costs the least that was seen. Not claimed: that the rows are of this very card; a row
that names another device is left out.
"""

from collections.abc import Iterable

from analysis.devices.ceilings import ABOVE_SHEET, impossible_bandwidth
from analysis.utilization import denominators
from results.records.answers import Machine
from results.records.cell import Ceiling

MOVES = ("copy", "triad")
LAUNCHES = {"cuda": "launch", "cpu": "call"}
"""Kind of device → the operation that says what starting work costs."""

IN_MEMORY = "memory"


def machine_of(
    rows: Iterable[Ceiling],
    device: str,
    device_name: str,
    multiprocessors: int | None = None,
    threads: int | None = None,
    highest_hz: float | None = None,
) -> Machine:
    """The machine of these rows. device: "cpu", "cuda" or "cuda:1"; threads: of torch on a CPU, None: whatever.

    What no row and no datasheet says stays empty, and what was timed above the sheet. multiprocessors: as the device
    reports them (analysis.devices.peaks); highest_hz: its highest SM clock. Sources are by unit for the ceiling,
    "datasheet UNIT" for the sheet, and by field; of a rate that cannot be, why.
    """
    mine = rows_of(rows, device, device_name, threads)
    sheet = denominators.datasheet(device_name, device, multiprocessors)
    known = sheet.device
    ceiling = denominators.ceiling_of(mine, known, highest_hz)
    memory, launch = bandwidth(mine), launch_cost(mine, device)
    sources = {**ceiling.sources, **{unit: f"{ABOVE_SHEET}: {why}" for unit, why in ceiling.refused.items()}}
    sources |= {f"datasheet {unit}": words for unit, words in sheet.sources.items()}
    if above := impossible_bandwidth(memory, known):
        sources["bytes_per_s"], memory = f"{ABOVE_SHEET}: {above}", None
    elif memory is not None:
        sources["bytes_per_s"] = f"{memory.operation}, {memory.shape}, measured here"
    if launch is not None:
        sources["launch_s"] = f"{launch.operation}, {launch.shape}, measured here"
    if known is not None and known.bandwidth_bytes_per_s:
        sources["datasheet_bytes_per_s"] = known.source
    return Machine(
        device=device,
        device_name=device_name,
        peak_by_unit=dict(ceiling.peak_by_unit),
        datasheet_by_unit=dict(sheet.peak_by_unit),
        bytes_per_s=memory.bytes_per_s if memory else None,
        launch_s=launch.best_s if launch else None,
        sources=sources,
        datasheet_bytes_per_s=known.bandwidth_bytes_per_s if known else None,
    )


def rows_of(rows: Iterable[Ceiling], device: str, device_name: str, threads: int | None = None) -> list[Ceiling]:
    """The rows of this kind of device, of this name where they have one, and of this number of threads."""
    kind = _kind(device)
    return [
        row
        for row in rows
        if _kind(row.device) == kind
        and row.device_name in ("", device_name)
        and (threads is None or row.threads in (None, threads))
    ]


def bandwidth(rows: Iterable[Ceiling]) -> Ceiling | None:
    """The fastest copy or triad beyond the last cache."""
    found = [row for row in rows if row.operation in MOVES and row.family == IN_MEMORY and row.bytes_per_s is not None]
    return max(found, key=lambda row: row.bytes_per_s or 0.0, default=None)


def launch_cost(rows: Iterable[Ceiling], device: str) -> Ceiling | None:
    """The cheapest launch on a device, call on a CPU."""
    wanted = LAUNCHES.get(_kind(device))
    found = [row for row in rows if row.operation == wanted and row.best_s is not None]
    return min(found, key=lambda row: row.best_s or 0.0, default=None)


def _kind(device: str) -> str:
    return device.partition(":")[0]
