"""The roofline of a whole training step on a target accelerator, and the sub-batch that it suggests.

    step = max(FLOP ÷ (achievable share · peak), bytes ÷ (achievable share · bandwidth))     section 5.2.2 of the paper

The shares (0.8 and 0.7 there) are assumptions, not measurements. Bytes are those of every operation alone, nothing
fused or cached, so that memory's side of the maximum is no bound of real machines. Not claimed: that a step is as fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from analysis.devices import memory as devices_memory
from analysis.devices import peaks
from analysis.formula.algebra.expressions import unknown_name

COMPUTE_RATIO, MEMORY_RATIO = 0.8, 0.7
"""The shares of peak and bandwidth that the paper assumes to be achievable."""

SATURATED = 0.95
"""An intensity this near its limit is saturated."""

ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Unit of arithmetic → bytes of a number in memory."""


@dataclass(frozen=True)
class Accelerator:
    """A target. memory_bytes, link_bytes_per_s and cache_bytes are None where nobody said. source: of the figures."""

    name: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    memory_bytes: float | None = None
    link_bytes_per_s: float | None = None
    cache_bytes: float | None = None
    compute_ratio: float = COMPUTE_RATIO
    memory_ratio: float = MEMORY_RATIO
    element_bytes: int = 4
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("peak_flop_per_s", "bandwidth_bytes_per_s"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name}: expected a number above 0, got {getattr(self, name):g}")
        for name in ("compute_ratio", "memory_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a share above 0 and at most 1, got {getattr(self, name):g}")

    @property
    def flop_per_s(self) -> float:
        """Achievable."""
        return self.compute_ratio * self.peak_flop_per_s

    @property
    def bytes_per_s(self) -> float:
        """Achievable."""
        return self.memory_ratio * self.bandwidth_bytes_per_s

    @property
    def nominal_ridge(self) -> float:
        """FLOP a byte from which on the sheet's figures make arithmetic the bound."""
        return self.peak_flop_per_s / self.bandwidth_bytes_per_s

    @property
    def ridge(self) -> float:
        """FLOP a byte at which achievable arithmetic and bandwidth take equally long."""
        return self.flop_per_s / self.bytes_per_s

    def step(self, flop: float, moved_bytes: float) -> AcceleratorStep:
        """The roofline of a step or of an operation."""
        arithmetic, memory = flop / self.flop_per_s, moved_bytes / self.bytes_per_s
        time = max(arithmetic, memory)
        utilization = flop / time / self.peak_flop_per_s if time else 0.0
        return AcceleratorStep(time, "arithmetic" if arithmetic >= memory else "memory", utilization)


@dataclass(frozen=True)
class AcceleratorStep:
    """bound: arithmetic or memory; utilization_ratio: of the nominal peak."""

    time_s: float
    bound: str
    utilization_ratio: float


@dataclass(frozen=True)
class SubBatches:
    """Sub-batches of interest (section 5.2.1 of the paper), each a whole number, None where there is none.

    ridge: the intensity of the whole step is at the ridge; fastest: the smallest with the least time a sample;
    saturated: the intensity is at `SATURATED` of what it tends to.
    """

    ridge: int | None
    fastest: int | None
    saturated: int | None


def of_device(device: str, unit: str, like: Accelerator) -> Accelerator:
    """A row of the table of peaks as a target, with everything that it does not say from `like`.

    Its memory is that of the table of memories, None where that has none.

    Raises ValueError as `device_called`, for a unit without a peak, a row without bandwidth.
    """
    row = peaks.device_called(device)
    if unit not in row.peaks:
        raise ValueError(f"{row.name}: {unknown_name('dtype with a peak', unit, row.peaks)}")
    if row.bandwidth_bytes_per_s is None:
        raise ValueError(f"{row.name}: expected a bandwidth in the table of peaks, there is none")
    memory = next(filter(None, map(devices_memory.lookup, (device, *row.names))), None)
    return replace(
        like,
        name=f"{row.name}, {unit}",
        peak_flop_per_s=row.peaks[unit],
        bandwidth_bytes_per_s=row.bandwidth_bytes_per_s,
        memory_bytes=float(memory.memory_bytes) if memory else None,
        link_bytes_per_s=None,
        cache_bytes=None,
        element_bytes=ELEMENT_BYTES[unit],
        source=row.source,
    )


def sub_batches(
    flop: Callable[[int], float],
    moved_bytes: Callable[[int], float],
    time_s: Callable[[int], float],
    ridge: float,
    most: int,
) -> SubBatches:
    """The sub-batches of a model whose step costs these, looked for up to `most`.

    time_s: of a step. fastest: the smallest whose time a sample is within 1 % of the least of all up to `most`.
    The intensity must not fall as the batch grows, as that of no model does whose weights are read once a step.
    """
    wanted = time_s(most) / most * 1.01
    limit = SATURATED * flop(most) / moved_bytes(most)

    def intensity(batch: int) -> float:
        return flop(batch) / moved_bytes(batch)

    return SubBatches(
        ridge=_first(lambda batch: intensity(batch) >= ridge, most),
        fastest=_first(lambda batch: time_s(batch) / batch <= wanted, most),
        saturated=_first(lambda batch: intensity(batch) >= limit, most),
    )


def _first(holds: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 1 to `most` at which this holds, if it holds from there on."""
    if not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
