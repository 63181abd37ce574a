"""What each `--precision` means: which dtype runs where, and so which unit's peak applies.

A precision is a policy, not a dtype: under `fp32` every product is IEEE single precision, under `tf32` convolutions
and matrix products may round their inputs to TF32, under `amp-*` autocast chooses per operation. Data only;
`measure/device/apply_precision.py` sets the flags on a device and reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass

UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
"""Arithmetic units a peak is quoted for. fp32 and fp64 are the CUDA cores; the others are tensor units with
fp32 accumulation (dense)."""

TENSOR_UNITS = ("tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Precision:
    """One policy. autocast: dtype name or None. tf32: may fp32 inputs be rounded to TF32. scaler: scales gradients."""

    name: str
    autocast: str | None
    tf32: bool
    scaler: bool
    convolution_unit: str
    matmul_unit: str


PRECISIONS = {
    "fp32": Precision("fp32", None, False, False, "fp32", "fp32"),
    "tf32": Precision("tf32", None, True, False, "tf32", "tf32"),
    "amp-bf16": Precision("amp-bf16", "bfloat16", True, False, "bf16", "bf16"),
    "amp-fp16": Precision("amp-fp16", "float16", True, True, "fp16", "fp16"),
}

_UNIT_OF_DTYPE = {"float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "int8"}


def unit_of(dtype: str, precision: Precision, device: str) -> str:
    """The unit that runs a convolution or matrix product of this input dtype under this policy.

    dtype: torch's name without "torch."; device: "cpu", "cuda", ….
    float32 runs on tf32 units where the policy allows it and the device is no CPU. Raises ValueError for a dtype
    that has no unit here.
    """
    if dtype == "float32":
        return "tf32" if precision.tf32 and not device.startswith("cpu") else "fp32"
    if dtype.startswith("float8"):
        return "fp8"
    if dtype in _UNIT_OF_DTYPE:
        return _UNIT_OF_DTYPE[dtype]
    raise ValueError(f"expected a dtype with a unit (float64, float32, float16, bfloat16, float8_*, int8), got {dtype}")
