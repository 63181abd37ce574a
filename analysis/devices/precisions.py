"""Defines what each `--precision` means: dtypes, units whose peaks apply, and the values that torch's flags must have.

A precision is a policy, not a dtype. Under `fp32`, every product (convolution or matrix product) is IEEE single
precision. Under `tf32`, products may round their inputs to TF32. Under `amp-*`, autocast chooses per operation.
`unit_of` takes a dtype, a precision and a device, and returns the arithmetic unit. `disagreements` takes recorded flags
(named as in `Run.flags_before`) and returns those that differ from the policy. Nothing is set here:
`measure/device/apply_precision.py` sets the flags on a device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
"""Arithmetic units that have a peak. fp32 and fp64 are the CUDA cores. The others are tensor units with dense
operands, which accumulate in fp32 (int8: in int32)."""

TENSOR_UNITS = ("tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Precision:
    """A precision. autocast: dtype name or None. tf32: whether fp32 inputs may be rounded to TF32. scaler: whether
    gradients are scaled."""

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
    """Return the unit that runs a convolution or matrix product of this input dtype under this policy.

    dtype: torch's name without "torch."; device: "cpu", "cuda", …. float32 runs on tf32 units where the policy allows
    it and the device is not a CPU. Raises ValueError for a dtype that has no unit here.
    """
    if dtype == "float32":
        return "tf32" if precision.tf32 and not device.startswith("cpu") else "fp32"
    if dtype.startswith("float8"):
        return "fp8"
    if dtype in _UNIT_OF_DTYPE:
        return _UNIT_OF_DTYPE[dtype]
    raise ValueError(f"expected a dtype with a unit (float64, float32, float16, bfloat16, float8_*, int8), got {dtype}")


OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Environment variables that override torch's flags of TF32: the first inside cuBLAS and cuDNN, the second when torch
starts."""

ONEDNN_MATH = "DNNL_DEFAULT_FPMATH_MODE"
"""oneDNN documentation, "fpmath mode": lets fp32 primitives of a CPU round to bf16 or tf32."""

_IEEE = ("ieee", "none")
_EXPECTED_CPU: Mapping[str, tuple[Any, ...]] = {
    "mkldnn.matmul.fp32_precision": _IEEE,
    "mkldnn.conv.fp32_precision": _IEEE,
    "mkldnn.rnn.fp32_precision": _IEEE,
    "float32_matmul_precision": ("highest",),
}


def disagreements(
    flags: Mapping[str, Any],
    precision: Precision,
    device: str,
    cudnn_benchmark: bool | None = None,
    deterministic: bool | None = None,
) -> list[str]:
    """Return a line "FLAG: expected …, found …" for each flag that disagrees with the policy.

    device: "cpu", "cuda", …; cudnn_benchmark, deterministic: the values that were set; None: not compared.
    """
    expected = dict(expected_cuda(precision) if device.startswith("cuda") else _EXPECTED_CPU)
    if cudnn_benchmark is not None:
        expected["cudnn.benchmark"] = (cudnn_benchmark,)
    if deterministic is not None:
        expected |= {"cudnn.deterministic": (deterministic,), "deterministic_algorithms": (deterministic,)}
    wrong = [
        f"{name}: expected {' or '.join(map(str, allowed))}, found {flags.get(name)}"
        for name, allowed in expected.items()
        if flags.get(name) not in allowed
    ]
    environ = {name.removeprefix("env."): value for name, value in flags.items() if name.startswith("env.")}
    return wrong + [
        f"env.{name}: expected unset, found {environ[name]}" for name in overriding(precision, device, environ)
    ]


def overriding(precision: Precision, device: str, environ: Mapping[str, str]) -> list[str]:
    """Return the set environment variables that change this policy's products, whatever the flags say.

    On CUDA, the variables of TF32 affect float32 products only. Under autocast there are few, so none is returned.
    """
    if device.startswith("cuda"):
        return [name for name in OVERRIDES if name in environ and precision.autocast is None]
    return [ONEDNN_MATH] if environ.get(ONEDNN_MATH, "strict").lower() != "strict" else []


def expected_cuda(precision: Precision) -> dict[str, tuple[Any, ...]]:
    """Return flag → the values that this policy allows on CUDA."""
    float32 = ("tf32",) if precision.tf32 else _IEEE
    return {
        "cuda.matmul.fp32_precision": float32,
        "cudnn.conv.fp32_precision": float32,
        "cudnn.rnn.fp32_precision": float32,
        "float32_matmul_precision": ("high",) if precision.tf32 else ("highest",),
        "cuda.matmul.allow_fp16_accumulation": (False,),
        "cudnn.enabled": (True,),
    }
