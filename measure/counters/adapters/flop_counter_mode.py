"""PyTorch's FlopCounterMode around one pass forward and back, as its users run it: eval mode, gradients on.

It counts at the dispatcher, 2 FLOP a multiply-add, convolutions, matrix products and attention alone. Its numbers stay
as they are: its backward pass of a grouped convolution is (1 + groups) times the forward pass (seen in torch 2.11 to
2.15; two times would be right), and attention whose scores are computed again counts 2.5 times. An operator without a
formula adds nothing and is not told by it: a second mode below sees every operator that it passed on, and those that
`analysis.operators.registry` takes for products, or does not know, are listed as not understood; other arithmetic as
ignored.
"""

from collections import Counter, defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from measure.counters.harness.rows import rows, uncounted
from measure.model.state_snapshot import evaluating, summed
from results.records.counts import FlopCount

NAME = "flop_counter_mode"

GLOBAL = "Global"
"""FlopCounterMode's name for everything."""


class OperatorCalls(TorchDispatchMode):
    """Counts the calls of every operator that reaches it, by phase; what they do is untouched."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = "forward"
        self.calls: defaultdict[str, Counter[Any]] = defaultdict(Counter)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[self.phase][getattr(func, "overloadpacket", func)] += 1
        return func(*args, **(kwargs or {}))


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each operator that added any."""
    counter, seen = FlopCounterMode(display=False), OperatorCalls()
    with evaluating(model), seen, counter:
        outputs = model(*inputs)
        forward = dict(counter.get_flop_counts().get(GLOBAL, {}))
        seen.phase = "loss"
        total = summed(outputs)
        seen.phase = "backward"
        if total is not None:
            total.backward()
        both = counter.get_flop_counts().get(GLOBAL, {})
    added = {operator: flop - forward.get(operator, 0) for operator, flop in both.items()}  # one mode counts both
    passes = {"forward": forward} if total is None else {"forward": forward, "backward": added}
    found = []
    for phase, counts in passes.items():
        calls = {str(operator): n for operator, n in seen.calls[phase].items() if operator not in counter.flop_registry}
        ignored, not_understood = uncounted(calls)
        blank = FlopCount(
            counter=NAME,
            workload=workload,
            batch_size=batch_size,
            phase=phase,
            native_unit="flop",
            ignored=ignored,
            not_understood=not_understood,
        )
        found += rows(blank, {(str(operator), "flop"): flop for operator, flop in counts.items() if flop})
    return found
