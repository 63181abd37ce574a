"""Counters that have hooks on modules, as their users run them: thop and torchinfo. Real tensors, eval mode, no
gradients, forward only.

Their own rules do all counting; here each is listened to, or asked again, so that a kind of module has one row of
multiply-adds (`mac`) and one of all else that was counted (`flop`). A product that runs in no module that they count is
listed as not understood.
"""

import copy
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from measure.counters.rows import UncountedCalls, add_call, rows, sum_counts, uncounted, uncounted_leaves, walk_modules
from measure.model.module_paths import ModulePaths
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

Own = Counter[tuple[str, str]]
"""(kind of module, unit) → what was counted."""


def thop(model: nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count the forward pass of model(*inputs): a total and a row for each kind of module.

    thop (pytorch-OpCounter) prints multiply-adds of the whole batch. Convolutions and linear layers are pure: no bias.
    A transposed convolution is taken for stride² times too much (its output's positions). Batch norm, layer norm and
    instance norm count 4 an element with weights, 2 without; softmax 3 an element less one a row; average pooling 1 an
    output, adaptive pooling its window and one more; resizing 1 to 259 an output by its mode; activations nothing.
    Recurrent layers count weights, gates and biases. A module counts once for each parent. It goes by the exact class
    of a module: no subclass of Linear, no function, no attention; leaf modules without a rule are listed as not
    understood. Its parameters are those of modules with a rule. The buffers and hooks that it leaves are taken off.

    Raises Inconsistent if its rules do not add up to its number, and whatever the model raises.
    """
    with warnings.catch_warnings():
        # it compares versions with distutils, which announces its end
        warnings.filterwarnings("ignore", "(distutils Version classes are|The distutils package is) deprecated")
        from thop import profile
        from thop.profile import register_hooks

    counts: defaultdict[int, Own] = defaultdict(Counter)  # by id of the module

    def listened(rule: Any) -> Any:
        def listen(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
            before = float(module.total_ops)
            rule(module, inputs, output)
            counted = float(module.total_ops) - before
            name = type(module).__name__
            if not counted and not isinstance(module, nn.Sequential):
                ignored[name] += 1
            add_call(counts[id(module)], name, counted, _thop_multiply_adds(module, counted))

        return listen

    with evaluating(model), ModulePaths(model) as paths:
        leaves = {path for path, m in model.named_modules(remove_duplicate=False) if not list(m.children())}
        ignored, unsupported = uncounted_leaves(model, register_hooks)
        rules = {kind: listened(rule) for kind, rule in register_hooks.items()}
        with UncountedCalls(lambda: paths.current in leaves) as unseen:
            reported, parameters = profile(model, inputs, custom_ops=rules, verbose=False)
    closed = {*register_hooks} - {nn.Sequential}  # thop does not look inside of what has a rule
    own = sum_counts(counts[id(module)] for module in walk_modules(model, closed))
    if reported != (heard := sum(own.values())):
        raise Inconsistent(f"thop gave {reported}, its rules {heard}")
    _, products = uncounted(unseen.calls)  # thop's own arithmetic is among what is ignored
    return rows(
        FlopCount(
            counter="thop",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="mac",
            ignored=dict(ignored),
            not_understood={**unsupported, **products},
            parameters=int(parameters),
        ),
        own,
    )


def _thop_multiply_adds(module: Any, counted: float) -> float:
    """Return how much of what thop counted for one call are multiply-adds, by thop/vision/basic_hooks.py and
    rnn_hooks.py."""
    from thop import rnn_hooks

    if isinstance(module, (nn.modules.conv._ConvNd, nn.Linear)):
        return counted
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}.get(kind := type(module).__name__.removesuffix("Cell"))
    if gates is None:
        return 0
    rule = getattr(rnn_hooks, f"_count_{kind.lower()}_cell")  # of one step
    hidden = module.hidden_size
    directions = 2 if getattr(module, "bidirectional", False) else 1
    sizes = [module.input_size] + (getattr(module, "num_layers", 1) - 1) * [directions * hidden]
    step = directions * sum(rule(size, hidden, module.bias) for size in sizes)
    products = directions * sum(gates * hidden * (size + hidden) for size in sizes)
    share: float = counted * products // step
    return share


def torchinfo(model: nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count the forward pass of model(*inputs): a total and a row for each kind of module.

    The "mult-adds" of torchinfo's summary are parameters times where they are used: of a class with "Conv" in its name
    times the positions of its output (right for convolutions; stride² times too much for transposed ones, and wrong for
    a linear layer that is called Conv1D), of a recurrent layer times the first two sizes of its output, of all else
    times the first. So a linear layer on tokens loses their number, and an embedding is taken for a product with its
    whole table. Biases and the weights of normalisations count like any other. Its rule is asked again for the matrices
    alone, which are the multiply-adds. Only leaves with parameters count: no function, and no attention, which is no
    leaf. Operators go by the class of torch.nn that a module is of, else by its own.

    Raises Inconsistent if torchinfo could not run the model, or if its leaves do not add up to its total.
    """
    from torchinfo import summary

    with evaluating(model), ModulePaths(model) as paths:
        leaves = {path for path, m in model.named_modules(remove_duplicate=False) if m._parameters and not m._modules}
        with UncountedCalls(lambda: paths.current in leaves) as unseen:
            try:
                statistics = summary(model, input_data=[*inputs], verbose=0)
            except RuntimeError as fault:  # its own words leave out what the model raised
                cause = fault.__cause__ or fault
                raise Inconsistent(f"torchinfo could not run the model: {type(cause).__name__}: {cause}") from fault
    own: Own = Counter()
    for layer in statistics.summary_list:
        if layer.is_leaf_layer and layer.macs:
            classes = [
                kind.__name__ for kind in type(layer.module).__mro__ if kind.__module__.startswith("torch.nn.mod")
            ]
            name = type(layer.module).__name__ if classes[:1] in ([], ["Module"]) else classes[0]
            matrices: Any = copy.copy(layer)
            matrices.module, matrices.macs = Matrices(layer.module), 0
            matrices.calculate_macs()
            add_call(own, name, layer.macs, matrices.macs)
    if (heard := own.total()) != statistics.total_mult_adds:
        raise Inconsistent(f"torchinfo gave {statistics.total_mult_adds}, its leaves {heard}")
    ignored, unsupported = uncounted(unseen.calls)
    return rows(
        FlopCount(
            counter="torchinfo",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="mac",
            ignored=ignored,
            not_understood=unsupported,
            parameters=statistics.total_params,
        ),
        own,
    )


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
