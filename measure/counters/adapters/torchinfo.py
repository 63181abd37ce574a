"""torchinfo's summary, as its users run it: hooks on modules, real tensors, eval mode, no gradients.

Its "mult-adds" are parameters times where they are used: of a class with "Conv" in its name times the positions of its
output (right for convolutions; stride² times too much for transposed ones, and wrong for a linear layer that is called
Conv1D), of a recurrent layer times the first two sizes of its output, of all else times the first. So a linear layer on
tokens loses their number, and an embedding is taken for a product with its whole table. Biases and the weights of
normalisations count like any other. Its own rule does all counting; this adapter asks it again for the matrices alone,
which are the multiply-adds (`mac`), the rest being "Conv2d elementwise" (`flop`), and checks that all leaves add up to
its total. Operators go by the class of torch.nn that a module is of, else by its own.

Only leaves with parameters count: no function, no matmul, and no attention, which is not a leaf. Products that run in
no such leaf are listed as not understood, which torchinfo itself does not tell. Forward only.
"""

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torchinfo
from torch import nn
from torchinfo.layer_info import LayerInfo

from measure.counters.rows import UncountedCalls, add_call, rows, uncounted
from measure.model.module_paths import ModulePaths
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Modules whose weights, of any shape, are no matrices."""


class Matrices:
    """A module of which torchinfo's rule sees the matrices alone: parameters of two sizes and more."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        if not isinstance(self._module, NORMALISATIONS):
            yield from ((name, tensor) for name, tensor in self._module.named_parameters() if tensor.dim() > 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def count(model: nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each kind of module.

    Raises Inconsistent if torchinfo could not run the model, or if its leaves do not add up to its total.
    """
    with evaluating(model), ModulePaths(model) as paths:
        leaves = {path for path, m in model.named_modules(remove_duplicate=False) if m._parameters and not m._modules}
        unseen = UncountedCalls(lambda: paths.current in leaves)
        with unseen:
            summary = _ask(model, inputs)
    own = _counts(summary.summary_list)
    if (heard := own.total()) != summary.total_mult_adds:
        raise Inconsistent(f"torchinfo gave {summary.total_mult_adds}, its leaves {heard}")
    ignored, not_understood = uncounted(unseen.calls)
    return rows(
        FlopCount(
            counter="torchinfo",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="mac",
            ignored=ignored,
            not_understood=not_understood,
            parameters=summary.total_params,
        ),
        own,
    )


def _ask(model: nn.Module, inputs: tuple[Any, ...]) -> torchinfo.ModelStatistics:
    """torchinfo's summary. Raises Inconsistent with what the model raised, which torchinfo's own words leave out."""
    try:
        return torchinfo.summary(model, input_data=[*inputs], verbose=0)
    except RuntimeError as fault:
        cause = fault.__cause__ or fault
        raise Inconsistent(f"torchinfo could not run the model: {type(cause).__name__}: {cause}") from fault


def _counts(layers: list[LayerInfo]) -> Counter[tuple[str, str]]:
    """What torchinfo counted for all leaves, in all their calls, by kind of module."""
    own: Counter[tuple[str, str]] = Counter()
    for layer in layers:
        if not layer.is_leaf_layer or not layer.macs:
            continue
        known = [kind.__name__ for kind in type(layer.module).__mro__ if kind.__module__.startswith("torch.nn.modules")]
        name = type(layer.module).__name__ if known[:1] in ([], ["Module"]) else known[0]
        matrices: Any = copy.copy(layer)
        matrices.module, matrices.macs = Matrices(layer.module), 0
        matrices.calculate_macs()
        add_call(own, name, layer.macs, matrices.macs)
    return own
