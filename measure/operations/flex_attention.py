"""FlexAttention in a trace on fake tensors: one fused attention, counted dense.

torch's own function refuses a backward pass on a CPU, and has no formula. In its place runs the CPU's fused attention
on the same query, key and value, which is counted dense as any other.

Not claimed: which pairs a block mask keeps; the work of a score's or a mask's function. On real tensors torch's own
function runs.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

MODULE = "torch.nn.attention.flex_attention"

_EVERY_PAIR = "noop_mask"
"""The name of the mask's function where no block mask was given."""


@contextlib.contextmanager
def stand_in(masked: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """While inside, FlexAttention is a fused attention. Nothing is done where torch's module is not loaded.

    masked: marks what runs inside of it as an attention under a mask that is not known.
    """
    flex: Any = sys.modules.get(MODULE)
    if flex is None:
        yield
        return

    def attend(query: Any, key: Any, value: Any, _score: Any, mask: Any, *_rest: Any, **_named: Any) -> Any:
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, 1) if groups > 1 else each for each in (key, value))
        has_mask = getattr(mask[-1], "__name__", "") != _EVERY_PAIR
        with masked() if has_mask else contextlib.nullcontext():
            out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]
        beside = query.new_empty(query.shape[:-1])
        return out, beside, beside

    instead = {
        "flex_attention_hop": attend,
        "_validate_device": lambda *_: None,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
    }
    before = {name: getattr(flex, name) for name in instead}
    try:
        for name, each in instead.items():
            setattr(flex, name, each)
        yield
    finally:
        for name, each in before.items():
            setattr(flex, name, each)
