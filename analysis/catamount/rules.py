"""Catamount's counting rules as a second table over this project's vocabulary: pass `RULES` to
`analysis.operators.registry.cost`.

Each ATen operation is translated to the nodes of a TensorFlow graph (`aten_to_tensorflow.py`), and these are counted
as Catamount counts them (`graph_nodes.py`): model and other FLOP together are its "algorithmic FLOPs", bytes read
and written its "algorithmic bytes", `footprint` and `kept` its "total footprint". What an operation has no node for
(fused attention, layer norm, GELU: TensorFlow 1 composed them) keeps this project's own FLOP, each tensor read and
written once.

Optimizers: the language models' graphs apply plain gradient descent ("sgd-plain", ApplyGradientDescent, 2 a weight),
the ResNets' momentum ("sgd", ApplyMomentum, 4 a weight), as `optimizer_of` says; trace the step with that one. An
embedding's rows are subtracted where its gradient is made, so that its dense update is taken off again by a term.

What a graph does that a step of PyTorch does not is in `graph_terms.py`, to be added on top. Not claimed: that any
of this is what a device does; that FLOP of whole numbers or of copies mean something.
"""

from dataclasses import replace
from functools import partial
from math import prod

from analysis.catamount import aten_to_tensorflow
from analysis.catamount.graph_nodes import POINTWISE, SCALAR, GraphNode, flop, footprint_of, pooled, traffic
from analysis.operators import names, registry
from analysis.operators.cost import Cost, Size, attribute, shape
from analysis.operators.registry import Rule, Rules
from results.records.counts import Operation

KEPT = ("weight", "buffer", "optimizer_state")
"""Roles of the storages that are variables of a graph."""


def _traffic(translation: aten_to_tensorflow.Translation, operation: Operation) -> tuple[Size, Size]:
    return traffic(translation(operation))


TRANSLATIONS: dict[str, aten_to_tensorflow.Translation] = {
    "mm bmm": aten_to_tensorflow.product,
    "addmm": aten_to_tensorflow.added_product,
    "convolution": aten_to_tensorflow.convolution,
    "convolution_backward": aten_to_tensorflow.convolution_backward,
    "mkldnn_rnn_layer": aten_to_tensorflow.recurrent_layer,
    "mkldnn_rnn_layer_backward": aten_to_tensorflow.recurrent_layer_backward,
    "native_batch_norm": aten_to_tensorflow.batch_norm,
    "native_batch_norm_backward": aten_to_tensorflow.batch_norm_backward,
    "_softmax": aten_to_tensorflow.same("Softmax"),
    "_softmax_backward_data": aten_to_tensorflow.softmax_backward,
    "_log_softmax": aten_to_tensorflow.cross_entropy,
    "_log_softmax_backward_data": aten_to_tensorflow.cross_entropy_backward,
    "nll_loss_forward": aten_to_tensorflow.mean_loss,
    "nll_loss_backward": aten_to_tensorflow.mean_loss_backward,
    "embedding": aten_to_tensorflow.same("Gather"),
    "embedding_dense_backward": aten_to_tensorflow.embedding_backward,
    "add": aten_to_tensorflow.added("Add"),
    "sub": aten_to_tensorflow.added("Sub"),
    "mul": aten_to_tensorflow.multiplied,
    "threshold_backward": aten_to_tensorflow.same("ReluGrad"),
    "sum mean amax amin prod any all argmax argmin": aten_to_tensorflow.same("Reduce"),
    "cat": aten_to_tensorflow.same("Concat", SCALAR),
    "split split_with_sizes chunk": aten_to_tensorflow.same("Split", SCALAR),
    "slice": aten_to_tensorflow.copied("Slice", 2),
    "view _unsafe_view reshape": aten_to_tensorflow.copied("Reshape"),
    "transpose": aten_to_tensorflow.turned,
    "permute": aten_to_tensorflow.copied("Transpose"),
    "squeeze": aten_to_tensorflow.same("Squeeze"),
    "unsqueeze": aten_to_tensorflow.same("ExpandDims", SCALAR),
    "bernoulli": aten_to_tensorflow.bernoulli_nodes,
    "expand": aten_to_tensorflow.copied("Tile"),
    "zeros zeros_like new_zeros": aten_to_tensorflow.same("NumLike"),
    "rand rand_like randn randn_like": aten_to_tensorflow.same("RandomInitializer"),
    "where": aten_to_tensorflow.same("Select"),
    "multinomial": aten_to_tensorflow.same("Multinomial"),
    "constant_pad_nd": aten_to_tensorflow.same("Pad"),
    "select select_backward unbind stack t clone detach alias empty empty_like ones_like": aten_to_tensorflow.nothing,
    "_to_copy": aten_to_tensorflow.same("Cast"),
}
"""ATen names → the nodes in their place. Those of POINTWISE are added by `_pointwise`."""

RENAMED = {
    "add": "", "sub": "", "mul": "", "base_pointwise": "", "floor_div": "", "floor_mod": "",
    "neg": "neg negative", "div": "div true_divide", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "relu_grad": "", "rsqrt_grad": "", "sqrt_grad": "",
    "sigmoid_grad": "sigmoid_backward", "tanh_grad": "tanh_backward", "squared_difference": "",
}  # fmt: skip
"""Nodes in ATen's spelling → the ATen names, where these are not the same."""


def _pointwise() -> dict[str, aten_to_tensorflow.Translation]:
    found: dict[str, aten_to_tensorflow.Translation] = {}
    for listed in POINTWISE.values():
        for node in listed.split():
            spelled = "".join("_" + c.lower() if c.isupper() else c for c in node).removeprefix("_")
            found |= {name: aten_to_tensorflow.same(node) for name in RENAMED.get(spelled, spelled).split()}
    return found


NODES: dict[str, aten_to_tensorflow.Translation] = {
    **{f"aten.{name}": how for name, how in _pointwise().items()},
    **{f"aten.{name}": how for line, how in TRANSLATIONS.items() for name in line.split()},
}
"""ATen operation → its nodes."""


def _unknown_nodes(operation: Operation) -> aten_to_tensorflow.Nodes:
    """An operation without a node of its own: every tensor read and written once."""
    return (GraphNode("Unknown", aten_to_tensorflow.inputs(operation), aten_to_tensorflow.outputs(operation)),)


def _pool(backward: bool, operation: Operation) -> Cost:
    (node,) = _pool_node(backward, operation)
    return pooled(node, prod(attribute(operation, "kernel_size", [1])))


def _pool_node(backward: bool, operation: Operation) -> aten_to_tensorflow.Nodes:
    """MaxPool returns no places; its gradient reads the batch, the result and the gradient, equally large."""
    if backward:
        data, gradient = (
            aten_to_tensorflow.tensor(shape(operation, "self")),
            aten_to_tensorflow.tensor(shape(operation, "grad_output")),
        )
        return (GraphNode("MaxPoolGrad", (data, gradient, gradient), (data,)),)
    return (GraphNode("MaxPool", aten_to_tensorflow.inputs(operation), aten_to_tensorflow.outputs(operation)[:1]),)


def _rule(name: str, own: Rule) -> Rule:
    """Catamount's rule for a name of this project's table. The kind stays; only what FLOP and bytes are changes."""
    if name in _POOLS:
        backward = name.endswith("backward")
        return replace(own, reader=partial(_pool, backward), traffic=partial(_traffic, partial(_pool_node, backward)))
    if name in NODES:
        how = NODES[name]
        bucket = "ignored" if how is aten_to_tensorflow.nothing else "counted"
        return Rule(own.kind, bucket, lambda operation: flop(how(operation)), partial(_traffic, how))
    if own.kind == "view":
        return own
    return replace(own, traffic=partial(_traffic, _unknown_nodes))


_POOLS = frozenset(f"aten.{name}{end}" for name in names.MAX_POOL.split() for end in ("", "_backward"))

RULES: Rules = {name: _rule(name, own) for name, own in registry.TABLE.items()}
"""The convention of Catamount, of every operation that this project's own table knows."""


def footprint(operation: Operation) -> Size:
    """What an operation adds to Catamount's total footprint: its outputs, and what it holds meanwhile; an update of a
    variable nothing."""
    if operation.name.removesuffix("_") in _POOLS:
        return footprint_of(_pool_node(operation.name.endswith("backward"), operation))
    name = operation.name if operation.name in NODES else operation.name.removesuffix("_")
    if name in NODES:
        return footprint_of(NODES[name](operation))
    rule = registry.rule_of(operation.name)
    return 0 if rule is not None and rule.kind == "view" else footprint_of(_unknown_nodes(operation))


def optimizer_of(model: str) -> str:
    """The optimizer, by the name that `workloads` has for it, of the graph that Catamount counted."""
    return "sgd" if model.startswith("resnet") else "sgd-plain"
