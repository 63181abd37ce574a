"""Looks up a device's datasheet peaks by exactly the name that its driver prints.

`lookup` takes that name and returns a `Device`, or None: a name that the table lacks has no peak, and nothing is
guessed. `device_called` takes a name that a person types. `peaks.csv` has one device per row: dense figures, tensor
units with fp32 accumulation, one source, and its verification. The verification is `retrieved` (read in the source, or
in a named copy), `memory` (recalled, not looked up) or `derived`. Derived figures are multiprocessors × rate × clock,
where the sheet prints none. `memory_units` and `derived_units` mark single figures. `sparse` has figures with 2:4
sparsity, `refused` the reasons for missing figures. Not claimed: that a device reaches its peak, or runs at `clock_hz`,
the clock that a figure implies. `format_peaks.py` returns the peak of one number format.
"""

import csv
import fnmatch
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.devices.precisions import UNITS
from results import text_files
from results.records.rows import digest

TABLE = Path(__file__).with_name("peaks.csv")
REFUSALS = Path(__file__).with_name("peak_refusals.csv")

SMALL_UNITS = ("mxfp8", "fp6", "fp4")
"""Formats with block scales. fp6 is MXFP6; fp4 is NVFP4 and MXFP4, whose rates are equal on every sheet so far."""

EXTRA_UNITS = ("fp64_tensor", "fp16_fp16acc", "fp16_cuda_core", *SMALL_UNITS)
"""Figures that are shown and never a default denominator. They are fp64 on tensor units, fp16 with fp16 accumulation
(torch's default is fp32), fp16 outside the tensor units, and formats that no precision of ours runs."""


LATER_COLUMNS = tuple(f"{unit}_flop_per_s" for unit in SMALL_UNITS)
"""Columns that were added after rows had ids. An empty one is not part of a row's id."""

STAND_IN = "stand-in of "
"""Prefix of the name of a stand-in, a simulated device for tests (docs/evidence.md). A stand-in has the peaks of the
device whose name follows. What is measured on it is evidence of this program only."""

STAND_IN_MARK = "stand_in"
"""Key of a stand-in in a session's environment, and code of the warning that each row of such a device has."""


def stand_in_warning(name: str) -> str:
    """Return the warning on each row of a stand-in device."""
    return f"{STAND_IN_MARK}: {name} computes nothing: no hardware was measured"


FLOP_PER_FMA = 2

OTHER_MAKERS = ("AMD ", "AWS ", "Google ", "Intel ")
"""Prefixes of names of devices that are not NVIDIA's."""

FMA_PER_CLOCK: Mapping[str, Mapping[str, int]] = {
    "3.7": {"fp64": 64, "fp32": 192},
    "5.2": {"fp64": 4, "fp32": 128},
    "6.0": {"fp64": 32, "fp32": 64, "fp16_cuda_core": 128},
    "6.1": {"fp64": 4, "fp32": 128, "int8": 512},
    "7.0": {"fp64": 32, "fp32": 64, "fp16": 512, "fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "7.5 pro": {"fp64": 2, "fp32": 64, "fp16": 512, "int8": 1024, "fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "7.5 geforce": {"fp64": 2, "fp32": 64, "fp16": 256, "int8": 1024, "fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "8.0": {"fp64": 32, "fp32": 64, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048}
    | {"fp64_tensor": 64, "fp16_fp16acc": 1024, "fp16_cuda_core": 256},
    "8.6 pro": {"fp64": 2, "fp32": 128, "tf32": 256, "fp16": 512, "bf16": 512, "int8": 1024}
    | {"fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "8.6 geforce": {"fp64": 2, "fp32": 128, "tf32": 128, "fp16": 256, "bf16": 256, "int8": 1024}
    | {"fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "8.6 a10g": {"fp64": 2, "fp32": 128, "tf32": 128, "fp16": 256, "bf16": 256, "int8": 512}
    | {"fp16_fp16acc": 256, "fp16_cuda_core": 128},
    "8.9 pro": {"fp64": 2, "fp32": 128, "tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 1024}
    | {"fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "8.9 l40": {"fp64": 2, "fp32": 128, "tf32": 128, "fp16": 256, "bf16": 256, "fp8": 512, "int8": 512}
    | {"fp16_cuda_core": 128},
    "8.9 geforce": {"fp64": 2, "fp32": 128, "tf32": 128, "fp16": 256, "bf16": 256, "fp8": 512, "int8": 1024}
    | {"fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "9.0": {"fp64": 64, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096}
    | {"fp64_tensor": 128, "fp16_fp16acc": 2048, "fp16_cuda_core": 256},
    "9.0 h20": {"fp32": 128, "tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 1024},
    "10.0": {"fp64": 64, "fp32": 128, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192}
    | {"fp64_tensor": 64, "fp16_fp16acc": 4096, "fp16_cuda_core": 256, "fp6": 8192, "fp4": 16384},
    "10.3": {"fp64": 2, "fp32": 128, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "fp6": 8192},
    "12.0 pro": {"fp64": 2, "fp32": 128, "tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 1024}
    | {"fp16_fp16acc": 512, "fp16_cuda_core": 128},
    "12.0 geforce": {"fp64": 2, "fp32": 128, "tf32": 128, "fp16": 256, "bf16": 256, "fp8": 512, "int8": 1024}
    | {"fp16_fp16acc": 512, "fp16_cuda_core": 128, "fp4": 2048},
    "gfx908": {"fp64": 32, "fp32": 128, "fp16": 512, "bf16": 256, "int8": 512},
    "gfx90a": {"fp64": 64, "fp32": 128, "fp16": 512, "bf16": 512, "int8": 512, "fp64_tensor": 128},
    "gfx942": {"fp64": 64, "fp32": 128, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048}
    | {"fp64_tensor": 128},
    "gfx950": {"fp64": 64, "fp32": 128, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096}
    | {"fp6": 8192, "fp4": 8192},
    "gfx1100": {"fp32": 128, "fp16": 256, "bf16": 256, "int8": 256},
    "gfx1201": {"fp32": 128, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 1024},
}
"""Dense multiply-adds per clock and multiprocessor (compute unit), by the `rates` column: the compute capability, and
after a space the family where one capability has several. GeForce halves products that accumulate in fp32; A10G, L40
and H20 are parts whose sheets print less than their generation's rate. Sources: the whitepapers of each generation."""


@dataclass(frozen=True)
class Device:
    """One row of the table. Peaks in FLOP/s (int8: operations/s) by unit; a unit without a figure is absent.

    names: what drivers print for it. multiprocessors, boost_hz: None where the maker states none. clock_hz: by unit,
    the clock that the figure implies; absent where the rate per clock is not known. verified: by unit, and for
    "bandwidth", its verification. sparse: by unit, the figure with 2:4 sparsity where the maker states one.
    refused: by unit, why it has no figure. row_id: digest of what a run may divide by, for the manifest.
    """

    name: str
    names: tuple[str, ...]
    compute_capability: str
    multiprocessors: int | None
    boost_hz: float | None
    peaks: Mapping[str, float]
    clock_hz: Mapping[str, float]
    bandwidth_bytes_per_s: float | None
    source: str
    verification: str
    verified: Mapping[str, str]
    evidence: str
    note: str
    row_id: str
    sparse: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def at_clock(self, unit: str, clock_hz: float) -> float | None:
        """Return the unit's peak in FLOP/s if it ran at this clock; None where the sheet's figure or its clock is
        unknown."""
        if unit not in self.peaks or unit not in self.clock_hz:
            return None
        return self.peaks[unit] * clock_hz / self.clock_hz[unit]


def normalise(name: str) -> str:
    """Return a driver's name in lower case, with single spaces, without a leading "NVIDIA"; for a stand-in, the name of
    the device that it stands in for."""
    tokens = name.casefold().removeprefix(STAND_IN).split()
    return " ".join(tokens[1:] if len(tokens) > 1 and tokens[0] == "nvidia" else tokens)


def is_stand_in(name: str) -> bool:
    """Return whether this is the name of a stand-in device: no hardware, whatever its figures."""
    return name.casefold().startswith(STAND_IN)


def lookup(name: str, multiprocessors: int | None = None) -> Device | None:
    """Return the row of the device that prints this name, or None: exact after `normalise`, never a part of a name.

    multiprocessors: the count that the device itself reports. With it a row must have that count as well, which tells
    apart parts that share a name (GeForce RTX 3080 with 10 and with 12 GB) and refuses slices and cut-down parts.
    Without it a shared name means the row that comes first, whose note says so. A row without a count fits any.
    """
    rows = _by_name().get(normalise(name), ())
    fitting = [row for row in rows if multiprocessors is None or row.multiprocessors in (None, multiprocessors)]
    return fitting[0] if fitting else None


def device_called(name: str) -> Device:
    """Return the row for a name that a person types: a whole name, the end of one row's names ("RTX 3090"), or words
    that only one row's names have ("MI300X").

    A driver prints whole names: use `lookup` for those. Raises ValueError for a name that fits no row, with the nearest
    names, and for one that fits several rows, with their peaks and bandwidths.
    """
    if (device := lookup(name)) is not None:
        return device
    wanted = normalise(name)
    called = [(row, [normalise(spelling) for spelling in (row.name, *row.names)]) for row in all_devices()]
    rows = [row for row, names in called if any(_tokens(wanted) <= _tokens(alias) for alias in names)]
    ending = [row for row, names in called if any(alias.endswith(f" {wanted}") for alias in names)]
    if len(ending) == 1 or len(rows) == 1:
        return (ending if len(ending) == 1 else rows)[0]
    if rows and _tokens(wanted):
        figures = []
        for row in rows[:4]:  # with the peak in its fastest common format and the bandwidth, which tell a family apart
            unit = next(unit for unit in ("bf16", "fp16", "fp32", *row.peaks) if unit in row.peaks)
            rate = f", {row.bandwidth_bytes_per_s / 1e12:.3g} TB/s" if row.bandwidth_bytes_per_s else ""
            figures.append(f"{row.name} ({unit} {row.peaks[unit] / 1e12:.4g} TFLOP/s{rate})")
        raise ValueError(f"several devices are called {name!r}: {'; '.join(figures)}")
    near = " or ".join(nearest(name)) or "none"
    raise ValueError(f"expected a device of the table of peaks, got {name!r}, nearest {near}")


def spelling(device: Device, name: str) -> str:
    """Return the name in the table's spelling, because a row may be of several devices with a name each.

    name: what the driver or the caller calls the device, which led to this row. For a name that the row lacks, the
    result is `device.name`. A stand-in keeps its name.
    """
    if is_stand_in(name):
        return name
    wanted = normalise(name)
    return next((known for known in (*device.names, device.name) if normalise(known) == wanted), device.name)


def nearest(name: str) -> list[str]:
    """Return up to three devices of the table with a name, or an end or word of it, that resembles this one, the most
    similar first. The result is for messages, never for a peak."""
    name_of: dict[str, str] = {}
    for row in all_devices():
        for tokens in (normalise(spelling).split() for spelling in (row.name, *row.names)):
            texts = {*tokens, *(" ".join(tokens[first:]) for first in range(len(tokens)))}
            name_of |= {text: row.name for text in sorted(texts) if text not in name_of}
    near = text_files.nearest(normalise(name), list(name_of), cutoff=0.5)
    return list(dict.fromkeys(name_of[text] for text in near))


def derived_upper_bound(
    compute_capability: str, multiprocessors: int, max_clock_hz: float, geforce: bool
) -> Mapping[str, float]:
    """Return the multiprocessors × rate × 2 × clock by unit, in FLOP/s, for a device that the table lacks.

    It is not a datasheet peak: it is too high where the sheet quotes tensor units at a lower clock (H100: 7.6 %) and
    for export and half-rate parts (H20: 4 ×), and where the clock is a board's highest. compute_capability: "8.6". An
    unknown generation gives an empty mapping. Raises ValueError unless multiprocessors and clock are positive.
    """
    if multiprocessors < 1 or max_clock_hz <= 0:
        raise ValueError(f"expected positive sizes, got {multiprocessors} multiprocessors at {max_clock_hz} Hz")
    family = f"{compute_capability} {'geforce' if geforce else 'pro'}"
    rates = FMA_PER_CLOCK.get(family) or FMA_PER_CLOCK.get(compute_capability) or {}
    return {unit: float(multiprocessors * fma * FLOP_PER_FMA * max_clock_hz) for unit, fma in rates.items()}


@functools.cache
def all_devices() -> tuple[Device, ...]:
    """Return every row of the table, in its order."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(_device(row) for row in csv.DictReader(file))


def table_digest() -> str:
    """Return 16 hex digits of SHA-256 over the table's bytes."""
    return hashlib.sha256(TABLE.read_bytes()).hexdigest()[:16]


@functools.cache
def _by_name() -> Mapping[str, tuple[Device, ...]]:
    index: dict[str, tuple[Device, ...]] = {}
    for row in all_devices():
        for spelling in dict.fromkeys(map(normalise, (*row.names, row.name))):
            index[spelling] = (*index.get(spelling, ()), row)
    return index


def _device(row: Mapping[str, str]) -> Device:
    multiprocessors = int(row["multiprocessors"]) if row["multiprocessors"] else None
    peaks = {unit: float(text) for unit in (*UNITS, *EXTRA_UNITS) if (text := row[f"{unit}_flop_per_s"])}
    rates = FMA_PER_CLOCK[row["rates"]] if row["rates"] else {}
    per_clock = {unit: (multiprocessors or 0) * fma * FLOP_PER_FMA for unit, fma in rates.items()}
    marks = {unit: mark for mark in ("memory", "derived") for unit in row[f"{mark}_units"].split()}
    refused = [part.partition(": ") for part in filter(None, row["refused"].split(" | "))]  # units: reason | …
    return Device(
        name=row["name"],
        names=tuple(row["names"].split("|")),
        compute_capability=row["rates"].partition(" ")[0],
        multiprocessors=multiprocessors,
        boost_hz=float(row["boost_hz"]) if row["boost_hz"] else None,
        peaks=peaks,
        clock_hz={unit: peak / per_clock[unit] for unit, peak in peaks.items() if per_clock.get(unit)},
        bandwidth_bytes_per_s=float(row["bandwidth_bytes_per_s"]) if row["bandwidth_bytes_per_s"] else None,
        source=row["source"],
        verification=row["verification"],
        verified={figure: marks.get(figure, row["verification"]) for figure in (*peaks, "bandwidth")},
        evidence=row["evidence"],
        note=row["note"],
        row_id=_row_id(row),
        sparse=_sparse(row, peaks),
        refused={unit: reason for units, _, reason in refused for unit in units.split()},
    )


def _row_id(row: Mapping[str, str]) -> str:
    """Return a digest of everything that a run may divide by and its source, without sparse figures and reasons."""
    absent = {"sparse", "refused", *(name for name in LATER_COLUMNS if not row[name])}
    return digest({name: value for name, value in row.items() if name not in absent})


def _sparse(row: Mapping[str, str], peaks: Mapping[str, float]) -> dict[str, float]:
    """Return the figures with sparsity by unit: `unit` means twice the dense figure, `unit=figure` another one."""
    figures = {}
    for word in row["sparse"].split():
        unit, _, figure = word.partition("=")
        figures[unit] = float(figure) if figure else 2 * peaks[unit]
    return figures


def _tokens(spelling: str) -> set[str]:
    return set(spelling.replace("-", " ").split())


def manifest_row(name: str, multiprocessors: int | None) -> dict[str, Any] | None:
    """Return the device's row of peaks.csv as a run's manifest keeps it; None where it has none."""
    device = lookup(name, multiprocessors)
    if device is None:
        return None
    fields = ("name", "row_id", "source", "verification", "bandwidth_bytes_per_s")
    return {**{field_name: getattr(device, field_name) for field_name in fields}, "peaks": dict(device.peaks)}


def name_refusal(device_name: str) -> str | None:
    """Return why a device of this name has no peak in any format; None for any other name, known or not.

    Names in `peak_refusals.csv` are patterns: a whole name, an end after `* `, or words between `* ` and ` *`.
    """
    name = normalise(device_name)
    with REFUSALS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if fnmatch.fnmatchcase(name, row["name"].casefold().removeprefix("nvidia ")):
                return row["reason"]
    return None
