"""Sets a precision policy on this process, reads every flag back, and returns where the policy and the flags disagree.

`apply` takes a `Precision` and a device, `read_flags` returns the flags, and `check` the disagreements as text. Flags
are set with the legacy calls (`set_float32_matmul_precision`, `cudnn.allow_tf32`) and read with the new getters
(`fp32_precision`). Once a new-style setter ran, legacy reads raise RuntimeError, also those of inductor (torch 2.11 to
2.15). After legacy setters both kinds of reads work. A getter also returns an inherited value; "none" means that
nothing is set here or above, which is IEEE. On a CPU every policy computes float32 as IEEE, whatever oneDNN could do
with tf32. Not claimed: that a library uses what a flag allows. Getters do not see environment variables that override a
flag below torch; `read_flags` lists these, and `supported` refuses them.
"""

import contextlib
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from analysis.devices.precisions import OVERRIDES, Precision, disagreements, overriding
from results.errors import Unavailable

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
DETERMINISTIC_WORKSPACE = ":4096:8"
"""cuBLAS documentation, "Results reproducibility": the setting that makes products on several streams repeat."""

RECORDED_ENVIRONMENT = (*OVERRIDES, CUBLAS_WORKSPACE, "TORCH_BLAS_PREFER_CUBLASLT", "DNNL_DEFAULT_FPMATH_MODE")
_BACKENDS: Any = torch.backends
_DETERMINISTIC: Any = torch.utils.deterministic

READERS: Mapping[str, Callable[[], Any]] = {
    "fp32_precision": lambda: _BACKENDS.fp32_precision,
    "cuda.matmul.fp32_precision": lambda: _BACKENDS.cuda.matmul.fp32_precision,
    "cudnn.fp32_precision": lambda: _BACKENDS.cudnn.fp32_precision,
    "cudnn.conv.fp32_precision": lambda: _BACKENDS.cudnn.conv.fp32_precision,
    "cudnn.rnn.fp32_precision": lambda: _BACKENDS.cudnn.rnn.fp32_precision,
    "mkldnn.fp32_precision": lambda: _BACKENDS.mkldnn.fp32_precision,
    "mkldnn.matmul.fp32_precision": lambda: _BACKENDS.mkldnn.matmul.fp32_precision,
    "mkldnn.conv.fp32_precision": lambda: _BACKENDS.mkldnn.conv.fp32_precision,
    "mkldnn.rnn.fp32_precision": lambda: _BACKENDS.mkldnn.rnn.fp32_precision,
    "float32_matmul_precision": torch.get_float32_matmul_precision,
    "cuda.matmul.allow_fp16_accumulation": lambda: _BACKENDS.cuda.matmul.allow_fp16_accumulation,
    "cuda.matmul.allow_fp16_reduced_precision_reduction": (
        lambda: _BACKENDS.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "cuda.matmul.allow_bf16_reduced_precision_reduction": (
        lambda: _BACKENDS.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "cudnn.enabled": lambda: _BACKENDS.cudnn.enabled,
    "cudnn.benchmark": lambda: _BACKENDS.cudnn.benchmark,
    "cudnn.benchmark_limit": lambda: _BACKENDS.cudnn.benchmark_limit,
    "cudnn.deterministic": lambda: _BACKENDS.cudnn.deterministic,
    "cudnn.depthwise_kernel": lambda: getattr(_BACKENDS.cudnn, "depthwise_kernel", None),  # absent in torch 2.11
    "mkldnn.enabled": lambda: _BACKENDS.mkldnn.enabled,
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "num_threads": torch.get_num_threads,
    "num_interop_threads": torch.get_num_interop_threads,
}
"""Flag → its getter. The names are the keys of `Run.flags_before`."""


def apply(precision: Precision, device: Any, cudnn_benchmark: bool = True, deterministic: bool = False) -> None:
    """Make this process compute as `precision` says on `device`. Read back with `read_flags` and `check`.

    deterministic: cuDNN's deterministic algorithms, and torch's where they exist (others warn, they do not fail);
    the cuBLAS workspace is set too, which works only before the process's first product on the device.
    Reductions of fp16 and bf16 products keep torch's default, as users train: reduced precision is allowed.
    """
    tf32 = precision.tf32 and _is_cuda(device)
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    _BACKENDS.cudnn.allow_tf32 = tf32
    _BACKENDS.cuda.matmul.allow_fp16_accumulation = False  # True would double the peak of GeForce parts
    _BACKENDS.cudnn.benchmark = cudnn_benchmark
    _BACKENDS.cudnn.deterministic = deterministic
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    _DETERMINISTIC.fill_uninitialized_memory = not deterministic  # a fill kernel each torch.empty
    if deterministic and _is_cuda(device):
        os.environ.setdefault(CUBLAS_WORKSPACE, DETERMINISTIC_WORKSPACE)


def read_flags(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return every flag that decides how a product is computed, as text, numbers and booleans; None: unknown to this
    torch.

    A flag that cannot be read because new and legacy setters were mixed reads "unreadable: …". Environment variables
    that matter are under "env.NAME", present only where set.
    """
    flags: dict[str, Any] = {name: _read(reader) for name, reader in READERS.items()}
    return flags | {f"env.{name}": environ[name] for name in RECORDED_ENVIRONMENT if name in environ}


def check(
    flags: Mapping[str, Any],
    precision: Precision,
    device: Any,
    cudnn_benchmark: bool | None = None,
    deterministic: bool | None = None,
) -> list[str]:
    """Return where flags that were read disagree with the policy: "FLAG: expected …, found …" each; empty if nowhere.

    cudnn_benchmark, deterministic: as given to `apply`; None: not compared.
    """
    return disagreements(flags, precision, str(device), cudnn_benchmark, deterministic)


def supported(precision: Precision, device: Any, environ: Mapping[str, str] = os.environ) -> None:
    """Raise Unavailable with the reason if this device cannot compute as `precision` says.

    device: a torch device or its name. Raises ValueError for a kind of device that is neither a CPU nor CUDA.
    """
    kind = str(device).split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"expected a device cpu, cuda or cuda:N, got {device}")
    refusal = _refused_on_cuda(precision, device) if kind == "cuda" else _refused_on_cpu(precision)
    if refusal:
        raise Unavailable(f"{precision.name} on {device}: {refusal}")
    for name in overriding(precision, str(device), environ):
        raise Unavailable(
            f"{precision.name} on {device}: the environment has {name}={environ[name]}, which overrides the flags"
        )


_ATTRIBUTES: tuple[tuple[Any, str], ...] = (
    (_BACKENDS.cuda.matmul, "allow_fp16_accumulation"),
    (_BACKENDS.cudnn, "benchmark"),
    (_BACKENDS.cudnn, "deterministic"),
    (_DETERMINISTIC, "fill_uninitialized_memory"),
)
"""Further flags that `apply` sets, and `restored` reads and puts back."""


@contextlib.contextmanager
def session(precision: Precision, device: Any) -> Iterator[dict[str, Any]]:
    """Apply flags within the context, and restore the former ones after it. Yields the flags as read back."""
    with restored():
        apply(precision, device)
        yield read_flags()


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the flags that `apply` sets when the context ends.

    Only what legacy setters can express is restored: "none" comes back as "ieee", which computes the same.
    """
    matmul, tf32 = _read(torch.get_float32_matmul_precision), _BACKENDS.cudnn.conv.fp32_precision == "tf32"
    values = [(owner, name, getattr(owner, name)) for owner, name in _ATTRIBUTES]
    algorithms = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    workspace = os.environ.get(CUBLAS_WORKSPACE)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul if matmul in ("highest", "high", "medium") else "highest")
        _BACKENDS.cudnn.allow_tf32 = tf32
        torch.use_deterministic_algorithms(algorithms, warn_only=warn_only)
        for owner, name, value in values:
            setattr(owner, name, value)
        if workspace is None:
            os.environ.pop(CUBLAS_WORKSPACE, None)
        else:
            os.environ[CUBLAS_WORKSPACE] = workspace


def _refused_on_cpu(precision: Precision) -> str:
    if precision.name == "tf32":
        return "TF32 is a unit of NVIDIA GPUs of compute capability 8.0 and later; a CPU has none"
    if precision.autocast == "float16":
        return "a CPU computes fp16 by conversion; amp-bf16 is its 16-bit policy"
    if precision.autocast == "bfloat16" and not _cpu_has_bf16():
        return "this CPU has no bf16 instructions (AVX512-BF16, AMX or Arm BF16); torch would emulate them"
    return ""


def _cpu_has_bf16() -> bool:
    """Return whether the CPU has bf16 instructions; oneDNN's emulation, which any AVX-512 CPU offers, is not enough."""
    if platform.machine() in ("aarch64", "arm64"):
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _refused_on_cuda(precision: Precision, device: Any) -> str:
    if not torch.cuda.is_available():
        return "no CUDA device is visible to torch"
    index = torch.device(device).index or 0
    if index >= torch.cuda.device_count():
        return f"there are {torch.cuda.device_count()} CUDA devices, numbered from 0"
    capability = torch.cuda.get_device_capability(index)
    here = f"this one has {capability[0]}.{capability[1]}"
    if precision.name == "tf32" and capability < (8, 0):
        return f"TF32 needs compute capability 8.0; {here}"
    if precision.autocast == "float16" and capability < (7, 0):
        return f"fp16 tensor units need compute capability 7.0; {here}"
    if precision.autocast == "bfloat16":
        with torch.cuda.device(index):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "" if native else f"bf16 units need compute capability 8.0; {here}, and torch would emulate them"
    return ""


def _read(reader: Callable[[], Any]) -> Any:
    try:
        value = reader()
    except RuntimeError as fault:  # mixed legacy and new setters
        return f"unreadable: {str(fault).splitlines()[0]}"
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _is_cuda(device: Any) -> bool:
    return str(device).startswith("cuda")
