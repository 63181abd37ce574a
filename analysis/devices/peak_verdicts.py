"""Is a peak that another table states right by ours, and if not, what did it take for the peak?

A figure is right within 2 %, as sheets round. What a wrong one is, is looked for among the figures that the row's own
sheet has and among other devices' figures of the format; a figure that is none of these is called so. Not claimed: why
its authors chose it; where our table has no figure, a stated one is neither right nor wrong here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.devices.device_peak import peak
from analysis.devices.peaks import FLOP_PER_FMA, FMA_PER_CLOCK, Device, all_devices, lookup, nearest

RIGHT_RATIO, SAME_RATIO = 0.02, 0.004
"""Within the first a figure is right: sheets round. Within the second it is another figure."""

RIGHT, WRONG, REFUSED, UNKNOWN, STATED = "right", "wrong", "refused", "both unknown", "no figure here"

VERDICTS = (RIGHT, WRONG, REFUSED, STATED, UNKNOWN)

DRIVER_NAMES = (
    *("NVIDIA GB300", "NVIDIA GB200", "NVIDIA B300 SXM6 AC", "NVIDIA B200"),
    *("NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"),
    *("NVIDIA GH200 480GB", "NVIDIA H800", "NVIDIA H20"),
    *("NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A800-SXM4-80GB", "NVIDIA A30", "NVIDIA A40"),
    *("NVIDIA A10", "NVIDIA A10G", "NVIDIA L40S", "NVIDIA L40", "NVIDIA L4", "NVIDIA L20"),
    *("Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB", "Tesla T4", "Tesla P100-SXM2-16GB"),
    *("NVIDIA RTX A6000", "NVIDIA RTX A4000", "NVIDIA RTX 6000 Ada Generation"),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    *("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"),
    *("NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 3090", "GeForce RTX 3090", "NVIDIA GeForce RTX 3080"),
    *("NVIDIA GeForce RTX 3070 Ti", "NVIDIA GeForce RTX 2080 Ti", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
    *("AMD Instinct MI355X", "AMD Instinct MI350X", "AMD Instinct MI325X", "AMD Instinct MI300X"),
    *("AMD Instinct MI300X VF", "AMD Instinct MI250X / MI250", "AMD Instinct MI210", "AMD Radeon RX 7900 XTX"),
    *("TPU v4", "TPU v5 lite", "TPU v6 lite"),
)
"""Names as drivers print them ("GeForce RTX 3090" before 2021; a slice; a virtual function)."""

BEST_KNOWN = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA B200")

_OWN = {
    "fp16_fp16acc": "fp16 accumulation",
    "fp32": "the fp32 vector units",
    "fp16_cuda_core": "fp16 without tensor units",
}


@dataclass(frozen=True)
class PeakVerdict:
    """A stated figure beside ours, in FLOP/s. took: what a wrong one is, in words."""

    said_flop_per_s: float | None
    ours_flop_per_s: float | None
    verdict: str
    took: str = ""


def judge(device_name: str, dtype: str, said: float | None, by_rate: bool = False) -> PeakVerdict:
    """The verdict on what a table says of a device in a format. by_rate: the table has rates per unit and clock."""
    device = lookup(device_name)
    known = None if device is None else peak(device_name, dtype)
    ours = None if known is None else known.flop_per_s
    if said is None:
        return PeakVerdict(None, ours, UNKNOWN if ours is None else REFUSED)
    if ours is None or device is None:
        return PeakVerdict(said, None, STATED)
    if _within(said, ours, RIGHT_RATIO):
        return PeakVerdict(said, ours, RIGHT)
    found = _rates(device, dtype, said) if by_rate else _figures(device, dtype, said)
    return PeakVerdict(said, ours, WRONG, next(found, f"{said / ours:.2f} × ours"))


def _within(one: float, other: float, ratio: float = SAME_RATIO) -> bool:
    return abs(one / other - 1) <= ratio


def _rates(device: Device, dtype: str, said: float) -> Iterator[str]:
    """Which rate per unit and clock a product of units, rate and clock has."""
    for capability, words in ((device.compute_capability, "its rate at the highest clock"), ("8.0", "an A100's rate")):
        fast = _at_boost(device, capability, dtype)
        if fast and _within(said, fast, 2 * SAME_RATIO):
            yield words


def _figures(device: Device, dtype: str, said: float) -> Iterator[str]:
    """What the figure may be, the nearest explanation first."""
    if dtype in device.sparse and _within(said, device.sparse[dtype]):
        same = _within(said, device.peaks.get("fp16_fp16acc", 1.0)) and dtype in ("fp16", "bf16")
        also = " or fp16 accumulation" if same else ""
        yield f"the figure with 2:4 sparsity{also} ({said / device.peaks[dtype]:.2f} ×)"
    for unit, words in _OWN.items():
        if unit != dtype and unit in device.peaks and _within(said, device.peaks[unit]):
            yield words
    for unit, figure in device.peaks.items():
        if unit not in (dtype, *_OWN) and _within(said, figure):
            yield f"its {unit}"
    if "gfx90a" in device.compute_capability and _within(said, 2 * device.peaks[dtype]):
        yield "the module, which is two devices"
    fast = _at_boost(device, device.compute_capability, dtype)
    if fast and _within(said, fast, 2 * SAME_RATIO):
        yield "units × rate at the highest clock"
    yield from _others(device, dtype, said)
    if dtype in device.sparse and _within(said, device.sparse[dtype], RIGHT_RATIO):
        yield f"the figure with 2:4 sparsity ({said / device.peaks[dtype]:.2f} ×)"


def _at_boost(device: Device, capability: str, dtype: str) -> float | None:
    rates = FMA_PER_CLOCK.get(capability, {})
    rates = {"fp8": rates["int8"], **rates} if "int8" in rates else rates  # who knows no fp8 takes int8's
    if dtype not in rates or not device.multiprocessors or not device.boost_hz:
        return None
    return rates[dtype] * device.multiprocessors * FLOP_PER_FMA * device.boost_hz


def _others(device: Device, dtype: str, said: float) -> Iterator[str]:
    """Devices whose figure it is: first those that tables know best, then those with a like name."""
    others = [row for row in all_devices() if row is not device]
    dense = [row.name for row in others if dtype in row.peaks and _within(said, row.peaks[dtype])]
    sparse = [row.name for row in others if dtype in row.sparse and _within(said, row.sparse[dtype])]
    for words, found in (("that of", dense), ("with 2:4 sparsity that of", sparse)):
        if known := [name for name in BEST_KNOWN if name in found]:
            yield f"{words} {known[0]}"
        elif found:
            like = [name for name in nearest(device.name, n=8) if name in found] if len(found) > 1 else found
            yield f"{words} {(like or found)[0]}"
