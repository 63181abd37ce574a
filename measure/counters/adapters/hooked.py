"""Counts a model's forward pass with thop and torchinfo, which put hooks on modules; returns `FlopCount` rows.

`thop` and `torchinfo` take a model and its inputs, and run it on real tensors in eval mode without gradients. The
libraries' own rules do all counting. To separate multiply-adds from the rest, one adapter observes thop's rules; the
other calls torchinfo's rule again for matrices only. Each kind of module gets a row of multiply-adds (`mac`) and a row
of everything else that was counted (`flop`). A product (convolution or matrix product) is listed as not understood if
it runs outside of the modules that the library counts.
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

    thop (pytorch-OpCounter) prints multiply-adds of the whole batch. Convolutions and linear layers count without their
    bias. A transposed convolution counts by its output's positions, which is stride² times too high. Batch, layer and
    instance norm count 4 per element with weights and 2 without. Softmax counts 3 per element, less 1 per row. Average
    pooling counts 1 per output, and adaptive pooling the size of its window and 1 more. Resizing counts 1 to 259 per
    output by its mode. Recurrent layers count their weights, gates and biases. PReLU counts 1 per element, and other
    activations nothing. A module counts once for each parent. A rule applies only to a module's exact class, so
    subclasses of Linear, functions and attention have none. Leaf modules without a rule are listed as not understood.
    The number of parameters covers modules with a rule. thop's buffers and hooks are removed afterwards.

    Raises Inconsistent if its rules do not add up to its number, and whatever the model raises.
    """
    with warnings.catch_warnings():
        # thop compares versions with distutils, which warns that it is deprecated
        warnings.filterwarnings("ignore", "(distutils Version classes are|The distutils package is) deprecated")
        from thop import profile
        from thop.profile import register_hooks

    counts: defaultdict[int, Own] = defaultdict(Counter)  # by id of the module

    def observed(rule: Any) -> Any:
        def count(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
            before = float(module.total_ops)
            rule(module, inputs, output)
            counted = float(module.total_ops) - before
            name = type(module).__name__
            if not counted and not isinstance(module, nn.Sequential):
                ignored[name] += 1
            add_call(counts[id(module)], name, counted, _thop_multiply_adds(module, counted))

        return count

    with evaluating(model), ModulePaths(model) as paths:
        leaves = {path for path, m in model.named_modules(remove_duplicate=False) if not list(m.children())}
        ignored, unsupported = uncounted_leaves(model, register_hooks)
        rules = {kind: observed(rule) for kind, rule in register_hooks.items()}
        with UncountedCalls(lambda: paths.current in leaves) as unseen:
            reported, parameters = profile(model, inputs, custom_ops=rules, verbose=False)
    closed = {*register_hooks} - {nn.Sequential}  # thop does not look inside of what has a rule
    own = sum_counts(counts[id(module)] for module in walk_modules(model, closed))
    if reported != (counted := sum(own.values())):
        raise Inconsistent(f"thop gave {reported}, its rules {counted}")
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
    """Return how many of thop's operations for one call are multiply-adds, by thop/vision/basic_hooks.py and
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

    The "mult-adds" of torchinfo's summary are a module's parameters × a factor: for a class with "Conv" in its name the
    positions of its output (right for convolutions; stride² times too high for transposed ones, and wrong for a linear
    layer that is called Conv1D), for a recurrent layer the first two sizes of its output, for all else the first one.
    Parameters with neither "weight" nor "bias" in their name count nothing.
    So the count of a linear layer ignores the number of tokens, and an embedding is taken for a product with its whole
    table. Biases and the weights of normalisations count like any other parameter. The rule is called a second time
    with the matrices only, which gives the multiply-adds. Only leaves with parameters count: no function, and no
    attention, which is not a leaf. An operator is named after the first class of torch.nn among the module's bases, or
    else after the module's own class.

    Raises Inconsistent if torchinfo could not run the model, or if its leaves do not add up to its total.
    """
    from torchinfo import summary

    with evaluating(model), ModulePaths(model) as paths:
        leaves = {path for path, m in model.named_modules(remove_duplicate=False) if m._parameters and not m._modules}
        with UncountedCalls(lambda: paths.current in leaves) as unseen:
            try:
                statistics = summary(model, input_data=[*inputs], verbose=0)
            except RuntimeError as fault:  # torchinfo's message leaves out what the model raised
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
    if (counted := own.total()) != statistics.total_mult_adds:
        raise Inconsistent(f"torchinfo gave {statistics.total_mult_adds}, its leaves {counted}")
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
"""Modules whose weights, of any shape, are not matrices."""


class Matrices:
    """A module of which torchinfo's rule sees only the matrices: parameters of two dimensions and more."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        if not isinstance(self._module, NORMALISATIONS):
            yield from ((name, tensor) for name, tensor in self._module.named_parameters() if tensor.dim() > 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
