"""What CUDA's dispatcher does otherwise than a CPU's, put over CPU tensors: which tensors a step on a GPU keeps.

* Under autocast CUDA runs a list of operators in float32 that a CPU runs in the half precision that came (softmax,
  normalisation, losses, powers, sums): torch's ATen/autocast_mode.h, AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE.
  Operators that a CPU's autocast has a rule for keep that one.
* Dropout keeps a mask of one byte an element on CUDA (`native_dropout`); on a CPU one as large as its input.

Registered for as long as the context lasts, for the whole process. Not claimed: what cuDNN's
batch normalisation and recurrent layers keep, which kernels are fused, in-place variants.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

IN_FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "cosine_similarity", "nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss",
    "huber_loss", "mse_loss", "binary_cross_entropy_with_logits", "logsumexp", "prod", "prod.dim_int", "softmax.int",
    "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm", "sum", "sum.dim_IntList",
)  # fmt: skip
"""Operators of CUDA's autocast list that a training step may call."""

FUSED_WITH_HALF = {"softmax.int": torch.ops.aten._softmax, "log_softmax.int": torch.ops.aten._log_softmax}
"""Operators whose kernel on CUDA reads float16 and writes float32, with no copy between. Not bfloat16
(aten/src/ATen/native/SoftMax.cpp)."""

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_HALVES = (torch.float16, torch.bfloat16)


@contextlib.contextmanager
def cuda_rules() -> Iterator[None]:
    """A context in which steps on CPU tensors keep what they would on CUDA."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name in IN_FLOAT32:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
                library.impl(name, _in_float32(name), "AutocastCPU")
        library.impl("dropout", _dropout, "AutogradCPU")
        yield
    finally:
        library._destroy()


def _in_float32(name: str) -> Callable[..., Any]:
    """The operator on float32 copies of what has half precision."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    fused = FUSED_WITH_HALF.get(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            if fused is not None and args[0].dtype == torch.float16 and not any(args[2:]) and not kwargs:
                return fused(args[0], args[1], True)
            return operator(*tree_map_only(torch.Tensor, _widened, args), **kwargs)

    return run


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _HALVES else tensor


def _dropout(tensor: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p == 0 or tensor.numel() == 0:
        return tensor
    return torch.native_dropout(tensor, p, train)[0]
