"""Replaces operators in a trace: those that take functions as arguments, and those that run differently on CUDA.

`inlined_operators` is a context in which branches and loops (`cond`, `switch`, `scan`, `map`, `while_loop`) run as
Python code. So each call of a body is recorded in both passes. An operator raises Unavailable with its name if its
branch or end depends on a value that tensors do not have. The context `stand_in` runs FlexAttention as the CPU's fused
attention, counted dense. The context `cuda_rules` applies CUDA's rules in the whole process. Autocast then runs a list
of operators in float32 (torch's ATen/autocast_mode.h, AT_FORALL_FP32), and dropout keeps a mask of one byte per
element. Not claimed: compiled loops, block masks, score functions, tensors that cuDNN's batch norm and recurrent layers
keep, fused kernels.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map, tree_map_only

from results.errors import Unavailable


@contextlib.contextmanager
def inlined_operators() -> Iterator[None]:
    """Run branches and loops (`_BODIES`) as Python code within the context. `torch.compile` returns functions
    unchanged, so that code that would be compiled runs as it was written."""
    with contextlib.ExitStack() as undo:
        for name, run in _BODIES.items():
            operator = getattr(torch.ops.higher_order, name, None)
            if operator is not None:
                undo.enter_context(replaced_attribute(type(operator), "__call__", run))
        undo.enter_context(replaced_attribute(torch, "compile", _as_it_is))
        if "torch._dynamo" in sys.modules:  # else nothing was compiled
            undo.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextlib.contextmanager
def replaced_attribute(owner: Any, name: str, instead: Any) -> Iterator[None]:
    """Give this attribute of an object another value within the context."""
    before = getattr(owner, name)
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _as_it_is(model: Any = None, **_options: Any) -> Any:
    return model if model is not None else lambda function: function


def _value(operator: Any, tensor: Any) -> int:
    try:
        return int(tensor)
    except Unavailable as fault:
        raise Unavailable(f"the branch or end of {operator.name()} depends on a value") from fault


def _cond(self: Any, predicate: Any, *branches_and_operands: Any) -> Any:
    yes, no, operands = branches_and_operands
    return (yes if _value(self, predicate) else no)(*operands)


def _switch(self: Any, index: Any, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    return branches[min(max(_value(self, index), 0), len(branches) - 1)](*operands)


def _while_loop(self: Any, goes_on: Any, body: Any, carried: Any, more: Any, **_named: Any) -> Any:
    carried = tuple(carried)
    while _value(self, goes_on(*carried, *more)):
        carried = tuple(body(*carried, *more))
    return carried


def _scan(_self: Any, body: Any, carried: Any, inputs: Any, more: Any = (), **_named: Any) -> Any:
    count, results = len(carried), []
    for parts in zip(*inputs, strict=True):
        outputs = tuple(body(*carried, *parts, *more))
        carried = outputs[:count]
        results.append(outputs[count:])
    return (*carried, *map(_stacked, *results))


def _map(_self: Any, body: Any, inputs: Any, more: Any = (), **_named: Any) -> Any:
    return tree_map(lambda *parts: _stacked(*parts), *(body(*parts, *more) for parts in zip(*inputs, strict=True)))


def _stacked(*parts: Any) -> Any:
    return torch.stack(parts) if isinstance(parts[0], torch.Tensor) else parts[0]


_BODIES: Mapping[str, Callable[..., Any]] = {
    "cond": _cond,
    "map_impl": _map,
    "scan": _scan,
    "switch": _switch,
    "while_loop": _while_loop,
}
"""Operator → the function that runs in its place."""


MODULE = "torch.nn.attention.flex_attention"

_EVERY_PAIR = "noop_mask"
"""The name of the mask's function if no block mask was given."""


@contextlib.contextmanager
def stand_in(masked: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Replace FlexAttention by a fused attention within the context. Nothing is done if torch's module is not loaded.

    masked: marks operations within it as an attention under an unknown mask.
    """
    flex: Any = sys.modules.get(MODULE)
    if flex is None:
        yield
        return

    def attend(query: Any, key: Any, value: Any, _score: Any, mask: Any, *_rest: Any, **_named: Any) -> Any:
        groups = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(groups, 1) if groups > 1 else tensor for tensor in (key, value))
        has_mask = getattr(mask[-1], "__name__", "") != _EVERY_PAIR
        with masked() if has_mask else contextlib.nullcontext():
            out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]
        statistics = query.new_empty(query.shape[:-1])
        return out, statistics, statistics

    instead = {
        "flex_attention_hop": attend,
        "_validate_device": lambda *_: None,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
    }
    with contextlib.ExitStack() as undo:
        for name, replacement in instead.items():
            undo.enter_context(replaced_attribute(flex, name, replacement))
        yield


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
    """Make steps on CPU tensors dispatch the operations, and keep the tensors, that they would on CUDA."""
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
    """Return a function that runs the operator on float32 copies of the arguments in half precision."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    fused = FUSED_WITH_HALF.get(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            if fused is not None and args[0].dtype == torch.float16 and not any(args[2:]) and not kwargs:
                return fused(args[0], args[1], True)
            return operator(
                *tree_map_only(torch.Tensor, lambda x: x.float() if x.dtype in _HALVES else x, args), **kwargs
            )

    return run


def _dropout(tensor: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p == 0 or tensor.numel() == 0:
        return tensor
    return torch.native_dropout(tensor, p, train)[0]
