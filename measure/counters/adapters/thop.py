"""thop's profile (pytorch-OpCounter), as its users run it: hooks on modules, real tensors, eval mode, no gradients.

It prints multiply-adds of the whole batch. Convolutions and linear layers are pure: no bias. A transposed convolution
is taken for stride² times too much (its output's positions). Batch norm, layer norm and instance norm count 4 an
element with weights, 2 without; softmax 3 an element less one a row; average pooling 1 an output, adaptive pooling its
window and one more; resizing 1 to 259 an output by its mode; activations nothing. Recurrent layers count weights, gates
and biases. Its own rules do all counting; this adapter listens to each, and checks that they add up to its number as
thop adds up: a module once for each parent, which hooks it once each too. "LSTM" holds multiply-adds (`mac`), "LSTM
elementwise" the rest.

It goes by the exact class of a module: no subclass of Linear, no function, no matmul, no attention. Leaf modules
without a rule are listed as not understood, as are products that run in no leaf. Its parameters are those of modules
with a rule. It leaves buffers on the model, and hooks after an exception; they are taken off. Forward only.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

with warnings.catch_warnings():
    # thop compares versions with distutils, which announces its end.
    warnings.filterwarnings("ignore", message="distutils Version classes are deprecated", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message="The distutils package is deprecated", category=DeprecationWarning)
    from thop import profile, rnn_hooks
    from thop.profile import register_hooks

from measure.counters.rows import UncountedCalls, add_call, merged, rows, uncounted, uncounted_leaves, visited
from measure.model.module_paths import ModulePaths
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

CELLS = {
    nn.RNN: (1, rnn_hooks._count_rnn_cell),
    nn.RNNCell: (1, rnn_hooks._count_rnn_cell),
    nn.GRU: (3, rnn_hooks._count_gru_cell),
    nn.GRUCell: (3, rnn_hooks._count_gru_cell),
    nn.LSTM: (4, rnn_hooks._count_lstm_cell),
    nn.LSTMCell: (4, rnn_hooks._count_lstm_cell),
}
"""Recurrent module → its gates, each a product with the input and one with the state, and thop's rule for one step."""


def count(model: nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The forward pass of model(*inputs): a total and a row for each kind of module.

    Raises Inconsistent if its rules do not add up to its number, and whatever the model raises.
    """
    counts: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)  # by id of the module
    with evaluating(model), ModulePaths(model) as paths:
        leaves = {path for path, m in model.named_modules(remove_duplicate=False) if not list(m.children())}
        unseen = UncountedCalls(lambda: paths.current in leaves)
        ignored, not_understood = uncounted_leaves(model, register_hooks)
        rules = {kind: _hook(rule, counts, ignored) for kind, rule in register_hooks.items()}
        with unseen:
            reported, parameters = profile(model, inputs, custom_ops=rules, verbose=False)
    closed = {*register_hooks} - {nn.Sequential}  # thop does not look inside of what has a rule
    own = merged(counts[id(module)] for module in visited(model, closed))
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
            not_understood={**not_understood, **products},
            parameters=int(parameters),
        ),
        own,
    )


def _hook(
    rule: Callable[..., None], counts: Mapping[int, Counter[tuple[str, str]]], ignored: Counter[str]
) -> Callable[..., None]:
    """thop's rule for one kind of module, listened to."""

    def listen(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        before = float(module.total_ops)
        rule(module, inputs, output)
        counted = float(module.total_ops) - before
        name = type(module).__name__
        mac = _multiply_adds(module, counted)
        if not counted and not isinstance(module, nn.Sequential):
            ignored[name] += 1
        add_call(counts[id(module)], name, counted, mac)

    return listen


def _multiply_adds(module: Any, counted: float) -> float:
    """How much of what thop counted for one call are multiply-adds, by thop/vision/basic_hooks.py and rnn_hooks.py."""
    if isinstance(module, (nn.modules.conv._ConvNd, nn.Linear)):
        return counted
    if type(module) not in CELLS:
        return 0
    gates, rule = CELLS[type(module)]
    hidden = module.hidden_size
    directions = 2 if getattr(module, "bidirectional", False) else 1
    sizes = [module.input_size] + (getattr(module, "num_layers", 1) - 1) * [directions * hidden]
    step = directions * sum(rule(size, hidden, module.bias) for size in sizes)
    products = directions * sum(gates * hidden * (size + hidden) for size in sizes)
    share: float = counted * products // step
    return share
