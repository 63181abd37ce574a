"""Single kernels that NeuSight's authors timed, against the roofline.

Source: sitar-lab/NeuSight, `scripts/asplos/data/dataset`. One CSV an operation: products, 3 × 3 convolutions of
stride 1 and padding 1, softmax, layer normalisation and elementwise operations in float32, torch 2.1 and cuDNN 8.9.2,
with the names of the kernels that ran; `Latency` in ms. What is kept of a row are its sizes, the device, the time and
whether a kernel's name says Winograd or FFT.

A kernel takes at least max(FLOP ÷ peak, bytes ÷ bandwidth), its bytes being each operand once: whatever a cache does,
they were read from memory at least once unless an earlier kernel left them there. Not claimed: that the source's times
are of an empty cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.atlas.kernel_tables import kept_table, packed_table
from analysis.devices import lookup

SOURCE = "NeuSight"

COMMIT = "6945927d9afcca2b9daf021f8395e53edc5b4eef"

KERNELS = Path(__file__).with_name("published_kernels.csv.xz")

FILES = ("add", "bmm", "conv", "elem", "gelu", "linear", "ln", "relu", "softmax")
"""Names of the source's files, before `.csv`."""

PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "bmm": ("B", "M", "N", "K"),
    "linear": ("B", "M", "N", "K"),
    "conv": ("B", "Input_Channel", "Output_Channel", "Input_Size"),
}
"""Operation → the columns of its sizes; the others have B and H."""

CONVOLVED = {"Kernel_Szie": 3, "Stride": 1, "Padding": 1}
"""What every convolution of the source has (its own spelling)."""

PASSES = {"add": 3, "mul": 3, "div": 3}
"""Tensors that an elementwise operation reads and writes; 2 of all others. The source does not say whether the exponent
of `pow` is a tensor: 2 is the least."""

COLUMNS = ("op", "device", "algorithm", "size_0", "size_1", "size_2", "size_3", "time_ns")

ALGORITHMS = ("winograd", "fft")

FLOAT32_BYTES = 4

Numbers = NDArray[np.float64]


def is_neusight(path: Path) -> bool:
    """Whether a file's name and folder are those of the source's kernels."""
    return path.parent.name == "neusight" and path.name.partition(".")[0] in FILES


def read_kernels(paths: Iterable[Path]) -> pd.DataFrame:
    """The rows of the source's files with COLUMNS. Raises ValueError for one that is not of the source."""
    tables = [_read(path) for path in sorted(paths)]
    return pd.concat(tables, ignore_index=True)


def _read(path: Path) -> pd.DataFrame:
    rows = pd.read_csv(path, dtype={"Kernels": str})
    if missing := sorted({"OPName", "Latency", "Device", "Kernel Name", "B"} - set(rows.columns)):
        raise ValueError(f"{path.name}: expected the columns of NeuSight's kernels, got none called {missing[0]}")
    for name, value in CONVOLVED.items():
        if name in rows and (rows[name] != value).any():
            raise ValueError(f"{path.name}: expected convolutions with a {name} of {value} alone")
    if not (rows["Latency"] > 0).all():
        raise ValueError(f"{path.name}: expected a Latency above 0 in every row")
    names = rows["Kernel Name"].astype(str)
    if "Kernels" in rows:
        names = names + rows["Kernels"].fillna("").astype(str)
    found = pd.DataFrame({"op": rows["OPName"], "device": rows["Device"], "algorithm": ""})
    for word in ALGORITHMS:
        found.loc[names.str.contains(word, case=False), "algorithm"] = word
    sizes = PRODUCTS.get(str(rows["OPName"].iloc[0]), ("B", "H"))
    for place in range(4):
        found[f"size_{place}"] = rows[sizes[place]].astype("int64") if place < len(sizes) else 0
    found["time_ns"] = rows["Latency"].map(lambda time_ms: int(float(f"{time_ms * 1e6:.5g}")))
    return found


def packed_kernels(rows: pd.DataFrame) -> bytes:
    """The rows as a compressed CSV: the same bytes for the same rows."""
    return packed_table(rows, COLUMNS)


def kept_kernels(path: Path = KERNELS) -> pd.DataFrame:
    """The kept rows. Raises ValueError for a file that is not the table."""
    return kept_table(path, COLUMNS)


def against_roofline(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with flop, nbytes, bound_s (the least time by the datasheet) and over_ratio (bound ÷ time).

    rounded_s is the least time if the peak were multiprocessors × rate × boost clock, of which a sheet may print less.
    """
    flop, nbytes = _flop(rows), _nbytes(rows)
    devices = {name: _rates(name) for name in rows["device"].unique()}
    peak, exact, bandwidth = (rows["device"].map(lambda name, of=of: devices[name][of]) for of in range(3))
    time_s = rows["time_ns"] / 1e9
    bound_s = np.maximum(flop / peak, nbytes / bandwidth)
    return rows.assign(
        flop=flop,
        nbytes=nbytes,
        bound_s=bound_s,
        rounded_s=np.maximum(flop / exact, nbytes / bandwidth),
        over_ratio=bound_s / time_s,
        by_arithmetic=flop / peak >= nbytes / bandwidth,
    )


def _rates(name: str) -> tuple[float, float, float]:
    """(the sheet's fp32 peak, multiprocessors × rate × clock, bandwidth). Raises ValueError for an unknown device."""
    device = lookup(name)
    if device is None or device.bandwidth_bytes_per_s is None or device.boost_hz is None:
        raise ValueError(f"no datasheet figures of {name}")
    per_clock = device.peaks["fp32"] / device.clock_hz["fp32"]  # FLOP a clock, as the generation's rate has it
    return device.peaks["fp32"], per_clock * device.boost_hz, device.bandwidth_bytes_per_s


def _flop(rows: pd.DataFrame) -> Numbers:
    """A multiply-add is 2; 0 of what is no product. A convolution's output is as large as its input."""
    first, second, third, fourth = (rows[f"size_{place}"].to_numpy(float) for place in range(4))
    op = rows["op"].to_numpy()
    product, convolution = np.isin(op, ["bmm", "linear"]), op == "conv"
    found = np.where(product, 2 * first * second * third * fourth, 0.0)
    flop: Numbers = np.where(convolution, 2 * first * second * third * 9 * fourth**2, found)
    return flop


def _nbytes(rows: pd.DataFrame) -> Numbers:
    first, second, third, fourth = (rows[f"size_{place}"].to_numpy(float) for place in range(4))
    op = rows["op"].to_numpy()
    passes = np.array([PASSES.get(name, 2) for name in op], float)
    numbers = first * second * passes
    batched = first * (second * fourth + fourth * third + second * third)
    numbers = np.where(op == "bmm", batched, numbers)
    numbers = np.where(op == "linear", first * second * (third + fourth) + third * fourth, numbers)
    convolved = first * (second + third) * fourth**2 + 9 * second * third
    nbytes: Numbers = FLOAT32_BYTES * np.where(op == "conv", convolved, numbers)
    return nbytes


FASTER_ALGORITHM, ROUNDED = "algorithm", "rounded"

REASONS = {
    FASTER_ALGORITHM: "a kernel's name says Winograd or FFT: it multiplies less often than the convolution's FLOP say",
    ROUNDED: "the sheet's peak is rounded down from multiprocessors × rate × boost clock, and the time is within that",
}
"""Rule → why a kernel may be faster than the bound."""

MOST_WINOGRAD = 4.0
"""F(4 × 4, 3 × 3) has 36 multiplications for 144 (Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural
Networks")."""


def faster(rows: pd.DataFrame) -> pd.DataFrame:
    """Of rows with their bound those that beat it, with the rule that explains each: empty where none does."""
    found = rows[rows["over_ratio"] > 1]
    by_name = (found["op"] == "conv") & found["algorithm"].isin(ALGORITHMS) & (found["over_ratio"] <= MOST_WINOGRAD)
    rounded = found["by_arithmetic"] & (found["rounded_s"] <= found["time_ns"] / 1e9)
    rule = np.where(by_name, FASTER_ALGORITHM, np.where(rounded, ROUNDED, ""))
    return found.assign(rule=rule)
