"""Context parallelism: each rank has a part of every sequence, and attention goes round a ring, by torch's own.

torch's ring attention (`torch.distributed.tensor.experimental`) has the fused kernels of CUDA devices. On a CPU the
same ring is run here with the fused kernel that a CPU has, so that it can be tried and counted without a device. It
takes no mask but the causal one, and no dropout.

Causal attention is balanced where a sequence has two chunks for each rank: rank r has chunks r and 2n − 1 − r of 2n.
Not claimed: that a model mixes tokens in attention alone. What else does (a convolution over the sequence, positions
that a model counts by itself) sees its own part only.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from measure.operations.control_flow import exchanged
from results.errors import Unavailable

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

SEQUENCE = 1
"""The dimension of a model's inputs that is the sequence: after the batch."""

HEADS_FIRST = 2
"""The dimension of the operands of attention that is the sequence: after the batch and the heads."""

_aten = torch.ops.aten
_FORWARD = _aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def sequence_length(inputs: Sequence[Any]) -> int:
    """Tokens of each sequence of a model's inputs: batch × tokens, or batch × tokens × features.

    Raises ValueError for inputs that are no sequences, or of several lengths.
    """
    shapes = [tuple(each.shape) for each in inputs if isinstance(each, torch.Tensor)]
    lengths = {shape[SEQUENCE] for shape in shapes if len(shape) in (2, 3)}
    if len(lengths) != 1 or any(len(shape) not in (2, 3) for shape in shapes):
        sizes = " and ".join(" × ".join(map(str, shape)) for shape in shapes) or "no tensor"
        raise ValueError(
            f"cp: expected inputs of batch × tokens or batch × tokens × features of one length, got {sizes}"
        )
    return int(lengths.pop())


def is_balanced(length: int, ranks: int, causal: bool) -> bool:
    """Whether each rank gets a chunk of the beginning and one of the end. Raises ValueError where ranks do not divide
    the sequence."""
    if length % ranks:
        near = max(ranks, round(length / ranks) * ranks)
        raise ValueError(f"expected a sequence that is a multiple of cp={ranks}, got {length} tokens; nearest {near}")
    return causal and length % (2 * ranks) == 0


def sequence_part(tensor: Any, rank: int, ranks: int, balanced: bool) -> Any:
    """A rank's part of an input, target or table of positions (batch × tokens …); what is no tensor as it is."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if not balanced:
        return tensor.chunk(ranks, SEQUENCE)[rank]
    chunks = tensor.chunk(2 * ranks, SEQUENCE)
    return torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]), SEQUENCE)


def with_positions(model: torch.nn.Module, positions: torch.Tensor) -> None:
    """Have a model that takes `position_ids` get those of its part (1 × tokens), in place of 0, 1, 2, …"""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return

    def tell(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {"position_ids": positions, **kwargs}

    model.register_forward_pre_hook(tell, with_kwargs=True)


@contextlib.contextmanager
def ring_attention(mesh: DeviceMesh, balanced: bool, causal: bool) -> Iterator[None]:
    """Inside, scaled_dot_product_attention of this rank's parts is that of the whole sequences.

    mesh: of the context axis alone; balanced: as in `sequence_part`; causal: whether all attention of the undivided
    model is, or none: a mask that the model makes of its part's positions is left out. Raises Unavailable for a torch
    whose ring attention is elsewhere, ValueError for dropout of attention.
    """
    try:
        from torch.distributed.tensor.experimental._context_parallel import _attention as ring

        enable, disable = ring._enable_context_parallel_dispatcher_impl, ring._disable_context_parallel_dispatcher_impl
        options = ring._cp_options
        handlers: dict[Any, Any] = ring.custom_ops
    except (ImportError, AttributeError) as fault:
        raise Unavailable(f"torch {torch.__version__} has no ring attention that is known here: {fault}") from fault
    own = {**handlers, _FORWARD: _ring_forward, _BACKWARD: _ring_backward}
    functions = torch.nn.functional
    with exchanged(options, "enable_load_balance", balanced), exchanged(ring, "custom_ops", own):
        try:
            enable(seq_dim=HEADS_FIRST, mesh=mesh)
            attention = _with_mask(functions.scaled_dot_product_attention, causal)
            with exchanged(functions, "scaled_dot_product_attention", attention):
                yield
        finally:
            disable()


def _with_mask(attention: Callable[..., Any], causal: bool) -> Callable[..., Any]:
    """scaled_dot_product_attention with the causal mask or none, whatever it is handed, and as many heads of keys as of
    queries: a model may repeat them itself where it makes a mask, and only some ranks' parts may have one."""

    def run(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if enable_gqa:
            groups = query.shape[1] // key.shape[1]
            key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
        return attention(query, key, value, dropout_p=dropout_p, is_causal=causal, scale=scale)

    return run


def _named(call: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, defaults too, each tensor this rank's own part."""
    declared = call._schema.arguments
    values = {each.name: each.default_value for each in declared if each.has_default_value()}
    values |= {each.name: value for each, value in zip(declared, args, strict=False)} | kwargs
    if values["dropout_p"]:
        raise ValueError("cp: torch's ring attention takes no dropout")
    return {name: getattr(value, "_local_tensor", value) for name, value in values.items()}


def _ring_forward(call: Any, args: Any, kwargs: Any) -> Any:
    """Attention on a CPU of DTensors that are divided along the sequence: output and logarithm of the sum."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    query = args[0]
    named = _named(call, args, kwargs)
    named.pop("attn_mask")
    mesh = query.device_mesh
    output, logsumexp = ring._templated_ring_attention(mesh.get_group(), HEADS_FIRST, call, **named)
    return _divided(output, mesh), _divided(logsumexp, mesh)


def _ring_backward(call: Any, args: Any, kwargs: Any) -> Any:
    """The gradients of `_ring_forward`'s operands."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    named = _named(call, args, kwargs)
    named.pop("attn_mask")
    mesh = args[1].device_mesh
    gradients = ring._templated_ring_attention_backward(
        mesh.get_group(), HEADS_FIRST, call, grad_out_name="grad_out", **named
    )
    return tuple(_divided(each, mesh) for each in gradients[:3])


def _divided(part: torch.Tensor, mesh: DeviceMesh) -> Any:
    """A DTensor of which this is this rank's part along the sequence."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    shape = list(part.shape)
    shape[HEADS_FIRST] *= mesh.size()
    strides = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        strides[place] = strides[place + 1] * shape[place + 1]
    meta = TensorMeta(torch.Size(shape), tuple(strides), part.dtype)
    return DTensor(part, DTensorSpec(mesh, (Shard(HEADS_FIRST),), tensor_meta=meta), requires_grad=False)
