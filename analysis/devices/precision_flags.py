"""What the flags of torch must read under each precision policy, and where flags that were read disagree.

Data and comparison alone, without torch: `measure/device/apply_precision.py` sets flags and reads them back,
`cleaning/gates_device` asks rows of the past. Flags are named as `Run.flags_before` names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.devices.precisions import Precision

OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Environment variables that switch TF32 below the flags (cuBLAS and cuDNN; torch's start value)."""

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
    """Where flags that were read disagree with the policy: "FLAG: expected …, found …" each; empty if nowhere.

    device: "cpu", "cuda", …; cudnn_benchmark, deterministic: what was set; None is not asked.
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
    """Variables that change what this policy's products do below the flags.

    On CUDA those of TF32 reach only the float32 products that fp32 and tf32 are about; under autocast few are left.
    """
    if device.startswith("cuda"):
        return [name for name in OVERRIDES if name in environ and precision.autocast is None]
    return [ONEDNN_MATH] if environ.get(ONEDNN_MATH, "strict").lower() != "strict" else []


def expected_cuda(precision: Precision) -> dict[str, tuple[Any, ...]]:
    """Flag → what it may read on CUDA under this policy."""
    float32 = ("tf32",) if precision.tf32 else _IEEE
    return {
        "cuda.matmul.fp32_precision": float32,
        "cudnn.conv.fp32_precision": float32,
        "cudnn.rnn.fp32_precision": float32,
        "float32_matmul_precision": ("high",) if precision.tf32 else ("highest",),
        "cuda.matmul.allow_fp16_accumulation": (False,),
        "cudnn.enabled": (True,),
    }
