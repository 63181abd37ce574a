"""PyTorch's FlopCounterMode around one pass forward and back, as its users run it: eval mode, gradients on.

It counts at the dispatcher, 2 FLOP a multiply-add, convolutions, matrix products and attention alone. Its numbers stay
as they are: its backward pass of a grouped convolution is (1 + groups) times the forward pass (seen in torch 2.11 to
2.15; two times would be right), and attention whose scores are computed again counts 2.5 times. An operator without a
formula adds nothing and is not told by it: a second mode below sees every operator that it passed on, and those that
`analysis.operators.registry` takes for products, or does not know, are listed as not understood; other arithmetic as
ignored.
"""

from collections import Counter
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from measure.counters.rows import UncountedCalls, rows, uncounted
from measure.model.state_snapshot import evaluating, summed
from results.records.counts import FlopCount


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Forward and backward of model(*inputs): a total and a row for each operator that added any."""
    counter, seen = FlopCounterMode(display=False), UncountedCalls(lambda: False)
    passes: dict[str, tuple[dict[Any, int], Counter[str]]] = {}
    with evaluating(model), seen, counter:
        outputs = model(*inputs)
        forward = dict(counter.get_flop_counts().get("Global", {}))
        passes["forward"] = forward, Counter(seen.calls)
        total = summed(outputs)
        seen.calls.clear()
        if total is not None:
            total.backward()
            both = counter.get_flop_counts().get("Global", {})  # one mode counts both
            passes["backward"] = {name: flop - forward.get(name, 0) for name, flop in both.items()}, seen.calls
    known = {str(operator) for operator in counter.flop_registry}
    counted = []
    for phase, (flops, calls) in passes.items():
        ignored, not_understood = uncounted({name: times for name, times in calls.items() if name not in known})
        blank = FlopCount(
            counter="flop_counter_mode",
            workload=workload,
            batch_size=batch_size,
            phase=phase,
            native_unit="flop",
            ignored=ignored,
            not_understood=not_understood,
        )
        counted += rows(blank, {(str(operator), "flop"): flop for operator, flop in flops.items() if flop})
    return counted
