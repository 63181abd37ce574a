"""A FlopCounterMode that counts right: PyTorch's own, with a formula of this project for every product it can meet.

    from flopledger import flop_counter_mode

    with flop_counter_mode(display=False) as mode:
        model(images).sum().backward()
    print(mode.get_total_flops())

PyTorch's counter multiplies the gradient of a grouped convolution's weight by the groups, and has no formula for LSTMs
on the CPU, for the fused paths of attention in evaluation, nor for mv, dot, addmv, addbmm, in-place addmm and more
(`docs/counters.md`). Here each gets the formula that `analysis/operators/registry.py` has for it; none is written
twice. The rest is PyTorch's: the table it prints, its rows by module. PyTorch itself is not patched.

Not claimed: rows by module, which PyTorch attributes and sometimes wrongly (totals are right); custom and quantised
operators, which have no formula in either; sparse matrices, which count as dense or not at all; work in other threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from analysis.operators import names, products, registry
from analysis.operators.cost import numel, shape
from measure.dispatch.schemas import Gradients, Plan, tensors_in
from results.records.operations import Operation

__all__ = ["Formula", "flop_counter_mode", "mapping"]


def flop_counter_mode(*, executed_attention: bool = False, **options: Any) -> FlopCounterMode:
    """PyTorch's FlopCounterMode with right formulas, to be entered with `with`.

    executed_attention: count the backward of torch's fused attention as executed, 2.5 × its forward, because its
    kernels compute the scores again; else as model FLOP, 2 ×. options: those of FlopCounterMode; an operator in its
    `custom_mapping` keeps the formula it has there.
    """
    given = options.pop("custom_mapping", None) or {}
    return FlopCounterMode(custom_mapping={**mapping(executed_attention), **given}, **options)


def mapping(executed_attention: bool = False) -> dict[Any, Formula]:
    """Operator → formula for every convolution, product, attention and recurrent layer that this PyTorch has; what
    FlopCounterMode takes as `custom_mapping`."""
    gradients = Gradients()
    return {packet: Formula(packet, gradients, executed_attention) for packet in _products()}


class Formula:
    """The model FLOP of one operator's calls.

    FlopCounterMode calls it after the operation with its arguments and, as `out_val`, its output: the tensors
    themselves, which `_get_raw` asks for, because a formula needs to know a complex number from a real one.
    """

    _get_raw = True

    def __init__(self, packet: Any, gradients: Gradients, executed_attention: bool = False) -> None:
        self._packet, self._gradients = packet, gradients
        self._executed = executed_attention and packet.__name__ in names.ATTENTION_BACKWARD.split()

    def __call__(self, *args: Any, out_val: Any = None, **kwargs: Any) -> Any:
        plan, inputs = _plan(self._packet, len(args), frozenset(kwargs)), tensors_in((*args, *kwargs.values()))
        call = plan.describe(None, args, kwargs, [tensor.shape for tensor in inputs], out_val)
        if self._executed:
            return _executed(call.operation())
        needed = self._gradients.seen(call, inputs)
        return 0 if needed is None else registry.model_flop(needed.operation())


def _products() -> Iterator[Any]:
    """The operators that are products by the table of kinds, and their in-place forms, but for those that are made of
    others (matmul, einsum, lstm) and come whole in inference mode: FlopCounterMode takes these apart itself."""
    for name, rule in registry.TABLE.items():
        if rule.kind not in registry.PRODUCTS:
            continue
        namespace, _, bare = name.partition(".")
        held = getattr(torch.ops, namespace)
        packets = [getattr(held, form) for form in (bare, f"{bare}_") if hasattr(held, form)]
        yield from (
            packet
            for packet in packets
            if packet in flop_registry or not getattr(packet, packet.overloads()[0])._can_decompose()
        )


@cache
def _plan(packet: Any, positional: int, named: frozenset[str]) -> Plan:
    """What is known of the overload that takes so many arguments by position and these by name: FlopCounterMode tells
    its formulas the operator alone. Of several the first; they have the tensors that a formula reads in common."""
    overloads = [getattr(packet, name) for name in packet.overloads()]
    for overload in overloads:
        arguments = [argument.name for argument in overload._schema.arguments]
        if positional <= len(arguments) and named <= set(arguments):
            return Plan(overload)
    raise ValueError(f"{packet}: expected an overload of {positional} arguments and {', '.join(sorted(named))}")


def _executed(operation: Operation) -> Any:
    """The backward of fused attention with the scores computed again; query, key and value are (…, length, width)."""
    query, key, value = (shape(operation, name) for name in ("query", "key", "value"))
    return products.attention_backward_executed(numel(query[:-1]), key[-2], query[-1], value[-1])
