"""Products and convolutions that DeepBench published of NVIDIA's devices, against the roofline.

Source: baidu-research/DeepBench at DEEPBENCH_COMMIT, `results/train`: a sheet of results a device and precision, with
sections of matrix products and of convolutions (the forward pass, with the name of its algorithm, and both gradients).
Times in ms, each of one kernel that is repeated on the same tensors. Sheets of devices without figures in the table of
devices are counted and left out, as are recurrent layers and all-reduce.

A product of M × K and K × N is kept as a 1 × 1 convolution of N items of one pixel with K input and M output channels:
its FLOP and bytes are the same. A kernel takes at least max(FLOP ÷ peak, bytes ÷ bandwidth), each operand once, of a
convolution's input the pixels that its windows touch. A gradient's operands are those of the forward pass.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.atlas.kernel_tables import kept_table, packed_table
from analysis.devices import lookup
from analysis.operators import touched_size

DEEPBENCH_COMMIT = "da81ba7820739e2e506dc27f382d15be5479f98f"

DEEPBENCH_KERNELS = Path(__file__).with_name("deepbench_kernels.csv.xz")

DEVICES = {
    "NV_1080Ti": "NVIDIA GeForce GTX 1080 Ti",
    "NV_M40": "Tesla M40",
    "NV_P100": "Tesla P100-SXM2-16GB",
    "NV_T4": "Tesla T4",
    "NV_TitanX": "NVIDIA GeForce GTX TITAN X",
    "NV_TitanX_Pascal": "NVIDIA TITAN X (Pascal)",
    "NV_TitanXp": "NVIDIA TITAN Xp",
    "NV_V100": "Tesla V100-SXM2-16GB",
}
"""Word in a sheet's name → device. The sheets do not say which form of P100 and V100: the faster is taken, whose bound
is the lower one."""

UNITS = {"Float": ("fp32", 4), "16 bit inputs, 16 bit multiplication, 32 bit addition": ("fp16", 2),
         "16 bit inputs, 32 bit multiplication, 32 bit addition": ("fp16_cuda_core", 2)}  # fmt: skip
"""Precision in the words of a sheet → (unit whose peak is taken, bytes of an element). The last, of a P100,
says that it multiplies in 32 bit; convolutions of stride 2, for which no Winograd is known, ran there at up to 1.5
times that peak, so that the peak of 16 bit is taken."""

PASSES = ("forward", "data gradient", "weight gradient")

PRODUCT = "product"

ALGORITHMS = ("WINOGRAD", "FFT")

Words = NDArray[np.str_]


@dataclass(frozen=True)
class Kernel:
    """One timed kernel: input of n × c × h × w, weight of k × c × r × s, output of n × k × out_h × out_w elements.

    algorithm: of the forward pass, as printed; read_h, read_w: the pixels of the input that the windows touch.
    """

    sheet: str
    line: int
    op: str
    device: str
    unit: str
    itemsize: int
    algorithm: str
    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    out_h: int
    out_w: int
    read_h: int
    read_w: int
    stride: int
    time_ns: int


COLUMNS = tuple(each.name for each in fields(Kernel))


def is_deepbench(path: Path) -> bool:
    """Whether a file's name is that of a sheet of results."""
    return path.name.startswith("DeepBench_") and path.suffix == ".csv" and "Specs" not in path.name


def read_deepbench(paths: Iterable[Path]) -> pd.DataFrame:
    """The kernels of the sheets of known devices with COLUMNS. Raises ValueError for one that is not of the source."""
    found = [astuple(each) for path in sorted(paths) if _device(path) for each in _read(path)]
    return pd.DataFrame(found, columns=list(COLUMNS))


def _device(path: Path) -> str:
    """The device of a sheet; empty where the table of devices has none like it."""
    return DEVICES.get(path.name.removeprefix("DeepBench_").partition("__")[0], "")


def _read(path: Path) -> Iterator[Kernel]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.reader(file))
    if not lines or lines[0][:1] != ["Precision"] or lines[0][1].strip() not in UNITS:
        raise ValueError(f"{path.name}: expected a first line with a Precision of {' or '.join(map(repr, UNITS))}")
    unit, size = UNITS[lines[0][1].strip()]
    section, heads = "", [""]
    for number, line in enumerate(lines[1:], start=2):
        words = [word.strip() for word in line]
        section = words[0] or section
        if "W" in words[2:3] or words[0]:
            heads = words
        if not words[2:3] or not words[2].isdigit():
            continue
        try:
            if section.startswith("Dense Matrix"):
                passes = [_product(words)]
            elif section.startswith("Convolution"):
                passes = list(_convolutions(words, heads))
            else:
                passes = []
        except (ValueError, IndexError) as fault:
            raise ValueError(f"{path.name}, line {number}: expected the sizes and times of a kernel: {fault}") from None
        for op, algorithm, numbers, time_ms in passes:
            time_ns = int(float(f"{time_ms * 1e6:.5g}"))
            numbered = dict(zip(SIZES, numbers, strict=True))
            yield Kernel(path.stem, number, op, _device(path), unit, size, algorithm, **numbered, time_ns=time_ns)


SIZES = COLUMNS[COLUMNS.index("n") : COLUMNS.index("time_ns")]

TimedPass = tuple[str, str, tuple[int, ...], float]
"""Pass, algorithm, the sizes from n to stride, and the time in ms."""


def _product(words: Sequence[str]) -> TimedPass:
    m, n, k = map(int, words[2:5])
    return PRODUCT, "", (n, k, 1, 1, m, 1, 1, 1, 1, 1, 1, 1), float(words[8])


def _convolutions(words: Sequence[str], heads: Sequence[str]) -> Iterator[TimedPass]:
    """The passes that were timed. Some sheets print the width of filter, padding and stride first, some the height."""
    w, h, c, n, k = map(int, words[2:7])
    pairs = [[int(words[place]), int(words[place + 1])] for place in (7, 9, 11)]
    if heads[7].startswith("S"):
        pairs = [pair[::-1] for pair in pairs]
    (r, s), (pad_h, pad_w), (step_h, step_w) = pairs
    out_h, out_w = (h + 2 * pad_h - r) // step_h + 1, (w + 2 * pad_w - s) // step_w + 1
    read_h, read_w = touched_size(h, r, out_h, step_h, pad_h), touched_size(w, s, out_w, step_w, pad_w)
    sizes = (n, c, h, w, k, r, s, out_h, out_w, read_h, read_w, min(step_h, step_w))
    for place, each in enumerate(PASSES, start=13):
        if words[place] and not words[place].startswith("N/A"):
            yield each, words[heads.index("Forward Algorithm")] if each == PASSES[0] else "", sizes, float(words[place])


def packed_deepbench(rows: pd.DataFrame) -> bytes:
    """The rows as a compressed CSV: the same bytes for the same rows."""
    return packed_table(rows, COLUMNS)


def kept_deepbench(path: Path = DEEPBENCH_KERNELS) -> pd.DataFrame:
    """The kept rows. Raises ValueError for a file that is not the table."""
    return kept_table(path, COLUMNS)


def deepbench_bounds(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with flop, moved_bytes, bound_s, over_ratio (bound ÷ time), by_arithmetic, and rule where it is above 1.

    rule: why the row may be faster than its bound; empty where nothing in the data says so. Raises ValueError for a
    device without figures.
    """
    positions = rows["n"] * rows["out_h"] * rows["out_w"]
    flop = 2.0 * positions * rows["k"] * rows["c"] * rows["r"] * rows["s"]
    given = rows["n"] * rows["c"] * rows["read_h"] * rows["read_w"]
    whole = rows["n"] * rows["c"] * rows["h"] * rows["w"]
    weight = rows["k"] * rows["c"] * rows["r"] * rows["s"]
    first = np.where(rows["op"] == PASSES[1], whole, given)  # the gradient of the input is written as a whole
    moved = rows["itemsize"] * (first + weight + positions * rows["k"])
    rates = {key: _rates(*key) for key in set(zip(rows["device"], rows["unit"], strict=True))}
    peak, bandwidth = (
        np.array([rates[key][of] for key in zip(rows["device"], rows["unit"], strict=True)]) for of in (0, 1)
    )
    arithmetic_s, memory_s = flop / peak, moved / bandwidth
    found = rows.assign(
        flop=flop,
        moved_bytes=moved,
        bound_s=np.maximum(arithmetic_s, memory_s),
        by_arithmetic=arithmetic_s >= memory_s,
        over_ratio=np.maximum(arithmetic_s, memory_s) / (rows["time_ns"] / 1e9),
    )
    return found.assign(rule=_rules(found))


def _rates(name: str, unit: str) -> tuple[float, float]:
    device = lookup(name)
    if device is None or device.bandwidth_bytes_per_s is None or unit not in device.peaks:
        raise ValueError(f"no datasheet figures of {name} in {unit}")
    return device.peaks[unit], device.bandwidth_bytes_per_s


ALGORITHM, ELSEWHERE, UNNAMED, CLOCK = "algorithm", "algorithm elsewhere", "unnamed algorithm", "clock"

DEEPBENCH_REASONS = {
    ALGORITHM: "the source names Winograd or FFT: it multiplies less often than the convolution's FLOP say",
    ELSEWHERE: "this sheet names another algorithm; those of two cards or more name Winograd or FFT at these sizes",
    UNNAMED: "a gradient of a filter of at least 3 × 3 with stride 1, for which cuDNN has Winograd and FFT; the source "
    "names the algorithm of the forward pass alone",
    CLOCK: "bound by arithmetic on a GeForce or TITAN card, which may run above the boost clock of its sheet",
}
"""Rule → why a kernel may be faster than its bound."""

MOST_FEWER, MOST_CLOCK = 4.0, 1.1
"""Bound ÷ time that a rule explains at most: F(4 × 4, 3 × 3) has 36 multiplications for 144 (Lavin and Gray 2016)."""


SHAPE = ["n", "c", "h", "w", "k", "r", "s", "stride"]


def _rules(rows: pd.DataFrame) -> Words:
    """Why each row is faster than its bound; empty where it is not, or where nothing in the data says why."""
    arithmetic, ratio, forward = rows["by_arithmetic"], rows["over_ratio"], rows["op"] == PASSES[0]
    faster = (ratio > 1) & arithmetic
    fewer = faster & (ratio <= MOST_FEWER)
    named = rows["algorithm"].str.contains("|".join(ALGORITHMS), case=False)
    cards = rows.assign(named=rows["device"].where(named)).groupby(["op", "itemsize", *SHAPE])["named"]
    elsewhere = forward & (cards.transform("nunique") >= 2)
    gradient = rows["op"].isin(PASSES[1:]) & (rows["r"] >= 3) & (rows["s"] >= 3) & (rows["stride"] == 1)
    clocked = rows["device"].str.contains("GeForce|TITAN") & (ratio <= MOST_CLOCK)
    conditions = [fewer & named, fewer & elsewhere, fewer & gradient, faster & clocked]
    found: Words = np.select(conditions, [ALGORITHM, ELSEWHERE, UNNAMED, CLOCK], "")
    return found
