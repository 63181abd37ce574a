"""fvcore's FlopCountAnalysis, as its users run it: a traced forward pass on real tensors, eval mode, gradients on.

Its numbers are in its own convention, and its total mixes two units: multiply-adds of convolutions and matrix products
count 1, while normalisation (2 an element for batch norm in eval mode, 5 for layer norm), adaptive pooling (1 an
input) and bilinear resizing (4 an output) count elementary operations. So each operator's row names its unit, `mac` or
`flop`, and the total's `flop` is the sum of its operators' (2 a multiply-add, 1 an operation); the total's native value
is fvcore's own, unconverted.

It does not see scaled_dot_product_attention, recurrent layers, baddbmm or padding="same"; those calls are listed as not
understood, as are residual additions and activations that it has no rule for. Forward only.
"""

import warnings
from collections import Counter
from typing import Any

import torch

from measure.counters.rows import rows
from measure.model.state_snapshot import evaluating, tensors
from results.records.counts import FlopCount

with warnings.catch_warnings():
    # fvcore scripts its focal loss when imported; torch announces the end of scripting.
    warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated", module=r"torch\.jit")
    from fvcore.nn import FlopCountAnalysis, parameter_count

MATRIX_OPERATORS = frozenset({"conv", "linear", "matmul", "mm", "bmm", "addmm", "einsum"})
"""Operators whose native unit is a multiply-add: fvcore/nn/flop_count.py. All others count elementary operations."""


class Analysis(FlopCountAnalysis):  # type: ignore[misc]  # fvcore has no types
    """fvcore's analysis that also remembers what it ignored on purpose. Its counts are untouched."""

    def __init__(self, model: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        super().__init__(model, inputs)
        self.ignored: Counter[str] = Counter()
        self.unsupported_ops_warnings(False)  # they are in the rows
        self.uncalled_modules_warnings(False)

    def _should_ignore_node(self, node: Any) -> bool:
        ignored: bool = super()._should_ignore_node(node)
        if ignored and not node.kind().startswith("prim::"):  # prim: the graph's own bookkeeping
            self.ignored[node.kind()] += 1
        return ignored


class TensorsOnly(torch.nn.Module):
    """Gives the model's output as a tuple of tensors: tracing refuses dictionaries. Adds no operation."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        return tuple(tensors(self.model(*inputs)))


def count(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each operator."""
    with evaluating(model):
        analysis = Analysis(TensorsOnly(model).eval(), inputs)
        analysis.total()
    modules = (name for name in analysis.uncalled_modules() if analysis._has_forward(name))
    uncalled = sorted(name.removeprefix("model.") for name in modules)
    more = f" and {len(uncalled) - 3} more" if len(uncalled) > 3 else ""
    blank = FlopCount(
        counter="fvcore",
        workload=workload,
        batch_size=batch_size,
        phase="forward",
        native_unit="mac",
        ignored=dict(analysis.ignored),
        not_understood=dict(analysis.unsupported_ops()),
        reason=f"note: modules never called: {', '.join(uncalled[:3])}{more}" if uncalled else "",
        parameters=parameter_count(model)[""],
    )
    counted = sorted(analysis.by_operator().items())
    return rows(blank, {(name, "mac" if name in MATRIX_OPERATORS else "flop"): value for name, value in counted})
