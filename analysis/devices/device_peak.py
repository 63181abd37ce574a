"""One question about the table of peaks: what can this device do at best in this dtype, and who says so?

Not claimed: that the device reaches it; a device or unit that the table lacks has none, and nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.devices.peaks import lookup, nearest
from analysis.devices.precisions import UNITS

_UNIT_OF = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}
_STRUCTURED = ("tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Peak:
    """A datasheet's peak. flop_per_s: FLOP/s (int8: operations/s); tensor units with fp32 accumulation.

    verification: "retrieved" (read in the source), "derived" (units × rate × clock) or "memory" (nobody looked it up).
    """

    device_name: str
    unit: str
    flop_per_s: float
    sparsity: bool
    source: str
    verification: str


def peak(device_name: str, dtype: str = "fp32", sparsity: bool = False) -> Peak | None:
    """The dense peak of a device by the name that its driver prints; None where the table has no figure.

    dtype: a unit (fp64, fp32, tf32, fp16, bf16, fp8, int8), or torch's name or dtype ("torch.bfloat16"). sparsity: with
    2:4 structured sparsity, which is twice the dense figure of tensor units; training does not use it. Raises
    ValueError for a dtype without a unit and for a device that is not in the table, with the nearest names.

    >>> import flopledger
    >>> flopledger.peak("NVIDIA A100-SXM4-80GB", "bf16").flop_per_s / 1e12
    312.0
    """
    name = str(dtype).removeprefix("torch.")
    unit = _UNIT_OF.get(name, "fp8" if name.startswith("float8") else name)
    if unit not in UNITS:
        raise ValueError(f"expected one of {', '.join(UNITS)} or torch's name of one as dtype, got {dtype!r}")
    device = lookup(device_name)
    if device is None:
        names = ", ".join(nearest(device_name)) or "none"
        raise ValueError(f"expected a device of the table of peaks, got {device_name!r}; nearest names: {names}")
    if unit not in device.peaks or (sparsity and not _has_sparsity(device.compute_capability, unit)):
        return None
    verified = device.verified.get(unit, device.verification)
    return Peak(device.name, unit, device.peaks[unit] * (2 if sparsity else 1), sparsity, device.source, verified)


def _has_sparsity(compute_capability: str, unit: str) -> bool:
    """NVIDIA's tensor units from Ampere on (A100 whitepaper, "fine-grained structured sparsity")."""
    major = compute_capability.partition(".")[0]
    return unit in _STRUCTURED and major.isdecimal() and int(major) >= 8
