"""Selects and checks measured ceilings (highest rates measured on a device), by which a utilization can be divided.

`best` takes rows of ceilings.csv and returns the fastest product (convolution or matrix product) of an arithmetic unit.
It compares both kinds, since 3 × 3 convolutions on a CPU reach 2.4 times the rate of matrix products. `impossible`
takes the rows and a datasheet's `Device`, and returns why a rate exceeds what the device can reach. `published_rates`
reads `achievable.csv`, the rates that others published; nothing is divided by them. `CollectiveRate` is the rate of a
collective of n ranks and S bytes. Its algorithm rate is S ÷ time. Its link rate (nccl-tests: bus bandwidth) is the
algorithm rate × `sent_share`, the share of S that each rank sends. Not claimed: that a ceiling is more than the best of
what was tried.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from analysis.devices import peaks
from analysis.devices.peaks import Device
from analysis.devices.precisions import TENSOR_UNITS
from results.records.cell import Ceiling
from results.records.rows import FromOne, Record

ABOVE_SHEET = "ceiling_above_sheet"
"""Prefix of the reason for not using a ceiling: it is above what the device can reach."""

FAST_ALGORITHM = 4.0
"""Winograd's F(4 × 4, 3 × 3) needs 36 multiplications where the direct count has 144 (Lavin and Gray 2016,
arXiv:1509.09308). So a convolution may seem up to this much faster than its unit is. No such algorithm is assumed
on tensor units."""

FAST_ALGORITHMS = ("winograd", "fft")
"""Algorithms that need fewer multiplications than are counted, as `Ceiling.family` of a convolution names them."""

SUSTAINED = "sustained"
"""Prefix of `Ceiling.family` for a kernel that ran back to back for seconds, at the clock that the power cap allows."""


def best(ceilings: Iterable[Ceiling], unit: str, sustained: bool = False) -> Ceiling | None:
    """Return the row of this unit's product or convolution with the highest FLOP/s, the first on a tie.

    None means that no row has a rate that is finite and above 0. sustained: choose among kernels that ran back to back
    for seconds, else among the others. The caller selects the rows of one device and session.
    """
    rows = [c for c in ceilings if c.unit == unit and c.status == "ok" and c.operation in ("matmul", "convolution")]
    rows = [c for c in rows if c.family.startswith(SUSTAINED) == sustained]
    measured = [c for c in rows if 0 < (c.flop_per_s or 0.0) < math.inf]
    return max(measured, key=lambda c: c.flop_per_s or 0.0, default=None)


def limit_of(row: Ceiling, known: Device, highest_hz: float | None) -> float | None:
    """Return the highest FLOP/s that a row's unit can reach; None where the sheet has no figure for it.

    highest_hz: the highest SM clock that the device reports; None: the sheet's. A sheet that quotes a unit at a higher
    clock is believed. Only a convolution whose kernels name a fast algorithm may be faster than its unit.
    """
    if row.unit not in known.peaks:
        return None
    sheet = max(known.at_clock(row.unit, highest_hz or known.boost_hz or 0.0) or 0.0, known.peaks[row.unit])
    return sheet * (FAST_ALGORITHM if has_fast_algorithm(row) and row.family.endswith(FAST_ALGORITHMS) else 1.0)


def has_fast_algorithm(row: Ceiling) -> bool:
    """Return whether a fast algorithm exists for what was timed; `row.family` says which one ran."""
    return row.operation == "convolution" and row.unit not in TENSOR_UNITS


def impossible(ceilings: Iterable[Ceiling], unit: str, known: Device | None, highest_hz: float | None = None) -> str:
    """Return why the ceilings of a unit cannot be believed: one of them exceeds its limit; "" if none does.

    known: the device's row of peaks; None: it has none. Whatever made one time too short (events, a kernel that did not
    run) may have shortened the others too.
    """
    if known is None:
        return ""
    for row in (row for row in ceilings if row.unit == unit and row.status == "ok" and row.flop_per_s is not None):
        limit = limit_of(row, known, highest_hz)
        if limit is not None and (row.flop_per_s or 0.0) > limit:
            what = f"{row.operation} {row.shape} {row.layout}".strip()
            return f"{unit} {what} was timed at {row.flop_per_s:.4g} FLOP/s, its unit has {limit:.4g}"
    return ""


def impossible_bandwidth(row: Ceiling | None, known: Device | None) -> str:
    """Return why the rate of a copy beyond the caches is impossible: it exceeds the memory's; "" if it does not."""
    if row is None or known is None or not known.bandwidth_bytes_per_s or not row.bytes_per_s:
        return ""
    if row.bytes_per_s <= known.bandwidth_bytes_per_s:
        return ""
    text = f"{row.operation} {row.shape} was timed at {row.bytes_per_s:.4g} B/s"
    return f"{text}, the memory has {known.bandwidth_bytes_per_s:.4g}"


ACHIEVABLE = Path(__file__).with_name("achievable.csv")


@dataclass(frozen=True)
class Achievable:
    """A published rate. unit: of analysis.devices.precisions.UNITS."""

    accelerator: str
    unit: str
    flop_per_s: float
    source: str


def published_rates(device_name: str, unit: str) -> list[Achievable]:
    """Return the published rates of this device's unit; empty where there are none, or `peaks.csv` lacks the device."""
    device = peaks.lookup(device_name)
    if device is None:
        return []
    with ACHIEVABLE.open(encoding="utf-8", newline="") as file:
        return [
            Achievable(row["accelerator"], unit, float(row["flop_per_s"]), row["source"])
            for row in csv.DictReader(file)
            if row["unit"] == unit and device.name in row["names"].split("|")
        ]


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True, kw_only=True)
class CollectiveRate(Record):
    """The rate of one collective at one size. Times are of one call, on the slowest rank; nbytes: S."""

    operation: str
    ranks: FromOne
    backend: str  # gloo, nccl
    device: str
    nbytes: int
    calls: int | None = None
    median_s: float | None = None  # of blocks of calls
    best_s: float | None = None
    algorithm_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    status: str = "ok"
    reason: str = ""


def sent_share(operation: str, ranks: int) -> Fraction:
    """Return the share of a buffer that each rank has to send. Raises KeyError for a name that is not in
    COLLECTIVES."""
    once = Fraction(ranks - 1, ranks)
    return {"all_reduce": 2 * once, "all_gather": once, "reduce_scatter": once, "all_to_all": once}[operation]
