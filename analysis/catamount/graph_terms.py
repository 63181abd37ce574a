"""Computes the costs that a model has in Catamount's TensorFlow graph and lacks in a traced PyTorch step.

`terms` takes a model's name and returns `Term`s, which are added to the costs that `rules.RULES` counts. A term is the
FLOP, bytes, footprint or parameters of a named group of graph nodes, as an expression in the model's sizes and `batch`.
The nodes are in `catamount_graphs.csv`, read off the graphs in Catamount's repository. `resnet_nodes` makes those of
tensorpack's ResNets (TensorFlow 1.5). `graph_nodes.py` counts them; nothing is fitted. A negative `times` marks nodes
that only PyTorch's step has. "Scalars" (bytes) and "ScalarFlop" (FLOP) stand for nodes on single numbers and on sizes.
Terms hold for the graph's number of layers (`FIXED`) and for speech of a multiple of 4 frames. The side of a ResNet's
image must be a multiple of 32, because Catamount's convolutions have no padding.
"""

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sympy

from analysis.catamount.graph_nodes import SCALAR, GraphNode, Operand, flop, footprint_of, parameters, traffic

GRAPHS = Path(__file__).with_name("catamount_graphs.csv")

QUANTITIES = ("parameters", "flop", "bytes", "footprint")

FIXED = {"wordlm": {"layers": 2}, "charlm": {"depth": 10}}
"""Model → the only sizes for which its terms hold, because the graph has only these."""

WHY = {
    "scalar variables": "the step counter and the learning rate (in speech the average loss) are variables: two more"
    " parameters, one in nmt, and an addition to the counter",
    "gradient clipping": "gradients are clipped by their global norm: an L2 loss each, which Catamount counts as 3"
    " FLOP whatever its length (a fault: it is 2N + 1), and a multiplication each",
    "gradient accumulators": "the sums of gradients over time steps begin with constants of zeros",
    "weight updates": "an embedding's rows are subtracted where its gradient is made, so that PyTorch's dense update"
    " is taken off; a layer's two matrices are one, and its scalar rate is read once",
    "mask of padding": "states, labels and gradients pass through a boolean mask that removes padding, though there is"
    " none",
    "inputs": "placeholders are written once each: tokens, labels, and the state that each layer begins with",
    "gradient of the softmax bias": "the gradient of logits + bias is summed over no axis on one side and over the rows"
    " on the other, and PyTorch's forms of the logits are views that count as copies here",
    "embedding": "the graph computes sizes for the gradient of the lookup",
    "reshape of states": "the graph computes sizes for the reshape of states before the softmax layer",
    "loss": "the mean is a sum, a size and divisions of scalars, each with a gradient",
    "gradients of sums and products": "TensorFlow sums and reshapes the gradient of both sides of a sum or product,"
    " broadcast or not, adds several gradients in one node where PyTorch adds two by two, and adds the first time"
    " step's to zeros",
    "loop": "in the while loop, batch-first tensors are transposed and back, output states are filled with zeros, and"
    " time steps are numbered and counted",
    "gradients and attention": "gradients of sums and products as in other graphs, but in the loop with attention; also"
    " masked memory, the state that is carried through, and zeros of the loop",
    "dropout": "dropout divides before it multiplies, and the gradient of a division is four nodes and their sums",
    "sequence lengths": "sentences have lengths: each step selects states by whether their sentence has ended, scores"
    " are masked, one direction is reversed",
    "products of three dimensions": "a product with a tensor of three dimensions (Tensordot) transposes and reshapes"
    " the matrix and its gradient",
    "copies that only PyTorch makes": "PyTorch's step writes zero states, views that count as copies, and a bias of"
    " zeros, which the graph does not",
    "stored means and deviations": "the sound's means and deviations are variables in the graph, and so parameters; in"
    " PyTorch they are buffers",
    "normalisation of the sound": "means and deviations are reshaped, and a constant keeps the deviations from zero",
    "noise and own letters": "weights get noise and letters are drawn at every step; PyTorch's draws differ a little",
    "pooling over time": "the graph's window is one step, PyTorch's two; lengths are halved with it",
    "convolution of the weights": "a one-dimensional convolution is a two-dimensional one with reshapes around it; the"
    " graph pads nothing, and its first step has a gradient",
    "loss and sums of gradients": "the gradients of a tensor with several consumers are added in one node, in the loops"
    " too; the loss masks letters, and divides by the batch",
    "encoder": "layers in two directions with lengths: states that ended are selected, sequences are reversed, cell and"
    " output are joined as one state",
    "gradient of the images": "the first convolution's data gets a gradient that no update uses: Catamount counts nodes"
    " that no fetch needs (a fault)",
    "input pipeline": "images come as bytes: cast, scaled, normalised, transposed",
    "top-1 and top-5 errors": "the training graph computes them, too",
    "moving averages and sizes": "the graph has moving averages of loss, errors and queue length, and sizes for the"
    " gradient of the pooling",
    "gradients of the residual sums": "TensorFlow sums over no axis and reshapes the gradient of both sides",
    "sizes for the gradients of convolutions": "each gradient reads the sizes of data and filter as tensors",
    "outputs of normalisations that nobody uses": "each normalisation has four gradients of zeros, and rates of its"
    " running means",
    "weight decay": "PyTorch's step has it for every parameter and the graph has none: it is subtracted",
    "counts of batches": "PyTorch's normalisations count their batches, the graph's do not",
    "form of the bias gradient": "it is a view in PyTorch, which counts as a copy",
}
"""Term → why it exists, in every graph that has it."""


@dataclass(frozen=True)
class Term:
    """One quantity (flop, bytes, footprint or parameters) of a group of nodes that no traced operation shows, in the
    workload's sizes and `batch`."""

    name: str
    quantity: str
    expression: sympy.Expr
    why: str


@cache
def terms(model: str) -> tuple[Term, ...]:
    """Return the nonzero terms of a model; none for a model of which Catamount has no graph."""
    groups = nodes(model)
    return tuple(
        Term(name, quantity, expression, WHY[name])
        for name, group in groups.items()
        for quantity, size in zip(
            QUANTITIES,
            (parameters(group), flop(group).all_flop, sum(traffic(group)), footprint_of(group)),
            strict=True,
        )
        if (expression := sympy.expand(size)) != 0
    )


@cache
def nodes(model: str) -> dict[str, tuple[GraphNode, ...]]:
    """Return term → the nodes it sums."""
    if model in DEPTHS:
        return resnet_nodes(model)
    groups: dict[str, tuple[GraphNode, ...]] = {}
    with GRAPHS.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] == model:
                tensors = _tensors(row["inputs"]), _tensors(row["outputs"])
                node = GraphNode(row["operation"], *tensors, _parsed(row["times"]))
                groups[row["term"]] = (*groups.get(row["term"], ()), node)
    return groups


_TENSOR = re.compile(r"\[([^\]]*)\](?::(\d))?")


def _tensors(text: str) -> tuple[Operand, ...]:
    """Parse tensors such as `[batch,seq]:8`: sizes, and the bytes of an element where these are not 4."""
    matches = _TENSOR.findall(text)
    return tuple(
        Operand(tuple(map(_parsed, sizes.split(",") if sizes else ())), int(width or 4)) for sizes, width in matches
    )


@cache
def _parsed(text: str) -> sympy.Expr:
    names = re.findall(r"[a-z_]+", text)
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in names}
    return sympy.sympify(text, locals=symbols)


BATCH, WIDTH, IMAGE, CLASSES = sympy.symbols("batch width image_size num_classes", integer=True, positive=True)
COLOURS = 3


DEPTHS = {
    "resnet18": ((2, 2, 2, 2), 1),
    "resnet34": ((3, 4, 6, 3), 1),
    "resnet50": ((3, 4, 6, 3), 4),
    "resnet101": ((3, 4, 23, 3), 4),
    "resnet152": ((3, 8, 36, 3), 4),
}
"""Model → blocks of each stage, and how many times wider than its stage a block's output is: 4 for a bottleneck."""


@dataclass(frozen=True)
class Sums:
    """Sums over a network's layers. channels: of all normalisations; weights: elements of all convolutions and of the
    linear layer; added: elements of all residual sums, for one image."""

    convolutions: int
    blocks: int
    channels: sympy.Expr
    weights: sympy.Expr
    added: sympy.Expr

    @property
    def parameters(self) -> sympy.Expr:
        """Number of trained elements."""
        return self.weights + 2 * self.channels + CLASSES


@cache
def sums(model: str) -> Sums:
    """Compute the sums of one ResNet. Raises KeyError for another model."""
    stages, wider = DEPTHS[model]
    convolutions, channels = 1, WIDTH
    weights = COLOURS * WIDTH * 49
    added, entering = sympy.Integer(0), WIDTH
    for stage, count in enumerate(stages):
        inner = WIDTH * 2**stage
        leaving = inner * wider
        for number in range(count):
            layers = [(entering, inner, 9), (inner, leaving, 9)]  # channels in, channels out, taps
            if wider > 1:
                layers = [(entering, inner, 1), (inner, inner, 9), (inner, leaving, 1)]
            if number == 0 and entering != leaving:
                layers.append((entering, leaving, 1))
            convolutions += len(layers)
            channels += sum(out for _, out, _ in layers)
            weights += sum(into * out * taps for into, out, taps in layers)
            added += leaving * (IMAGE / (4 * 2**stage)) ** 2
            entering = leaving
    return Sums(convolutions, sum(stages), channels, weights + entering * CLASSES, sympy.expand(added))


def resnet_nodes(model: str) -> dict[str, tuple[GraphNode, ...]]:
    """Return term → its nodes, with negative `times` for nodes that only PyTorch's step has. Raises KeyError for a
    model that is not in DEPTHS."""
    counted = sums(model)
    added = Operand((BATCH * counted.added,))
    sizes = (BATCH, IMAGE, IMAGE, COLOURS)
    colour, images, raw = Operand((COLOURS,)), Operand(sizes), Operand(sizes, 1)
    per_image, flags = Operand((BATCH,)), Operand((BATCH,), 1)
    pooled, weights = Operand((BATCH, WIDTH * 8 * DEPTHS[model][1])), Operand((counted.parameters,))
    return {
        "scalar variables": (
            GraphNode("Variable", (), (Operand((), 8),)),  # global step
            GraphNode("Variable", (), (SCALAR,)),  # learning rate
            GraphNode("Buffer", (), (SCALAR,), 12),  # of four moving averages: value, biased value, step
        ),
        "gradient of the images": (
            GraphNode(
                "Conv2DGradInput",
                (_whole(4), Operand((WIDTH, COLOURS, 7, 7)), Operand((BATCH, WIDTH, IMAGE / 2, IMAGE / 2))),
                (Operand((BATCH, COLOURS, IMAGE, IMAGE)),),
            ),
        ),
        "input pipeline": (
            GraphNode("Placeholder", (), (raw,)),
            GraphNode("Placeholder", (), (Operand((BATCH,)),)),
            GraphNode("Cast", (raw,), (images,)),
            GraphNode("Mul", (images, SCALAR), (images,)),
            GraphNode("Sub", (images, colour), (images,)),
            GraphNode("Div", (images, colour), (images,)),
            GraphNode("Constant", (), (colour,), 2),
            GraphNode("Transpose", (images, _whole(4)), (images,)),
        ),
        "top-1 and top-5 errors": (
            GraphNode("InTopK", (Operand((BATCH, CLASSES)), per_image, SCALAR), (flags,), 2),
            GraphNode("LogicalNot", (flags,), (flags,), 2),
            GraphNode("Cast", (flags,), (per_image,), 2),
            GraphNode("Reduce", (per_image, SCALAR), (SCALAR,), 2),
        ),
        # scalars and sizes, which do not grow with the graph: 64 operations on scalars; 580 bytes are read, and 560
        # written, by these and by what only makes, casts or reshapes a few numbers; and where TensorFlow's linear layer
        # and pooling differ from PyTorch's
        "moving averages and sizes": (
            GraphNode("ScalarFlop", (), (), 64),
            GraphNode("Scalars", (Operand((580,), 1),), (Operand((560,), 1),)),
            GraphNode("Reshape", (pooled, _whole(2)), (pooled,)),
            GraphNode("Scalars", (_whole(2),), ()),  # axes of the pooling
            GraphNode("Div", (per_image, SCALAR), (per_image,)),  # of the loss by the batch
        ),
        "gradients of the residual sums": (
            GraphNode("Reduce", (added,), (added,), 2),
            GraphNode("Reshape", (added,), (added,), 2),
            GraphNode("Scalars", (_whole(4),), (), 2 * counted.blocks),  # the forms
            GraphNode("Shape", (), (_whole(4),), 2 * counted.blocks),
            GraphNode("BroadcastGradientArgs", (_whole(4), _whole(4)), (), counted.blocks),
        ),
        "sizes for the gradients of convolutions": (
            GraphNode("Shape", (), (_whole(4), _whole(4)), counted.convolutions),
            GraphNode("Constant", (), (_whole(4),), counted.convolutions),
        ),
        "outputs of normalisations that nobody uses": (
            GraphNode("NumLike", (), (Operand((4 * counted.channels,)),)),
            GraphNode("Constant", (), (SCALAR,), 2 * counted.convolutions),  # how fast running means move
        ),
        "weight decay": (
            GraphNode("Mul", (weights,), (weights,), -1),
            GraphNode("AddN", (weights,) * 2, (weights,), -1),
            GraphNode("Scalars", (SCALAR,), (), -(3 * counted.convolutions + 2)),
        ),
        "counts of batches": (
            GraphNode("Add", (SCALAR, SCALAR), (SCALAR,), -counted.convolutions),
            GraphNode("Buffer", (), (Operand((), 8),), -counted.convolutions),
        ),
        "form of the bias gradient": (GraphNode("Reshape", (Operand((CLASSES,)), SCALAR), (Operand((CLASSES,)),), -1),),
    }


def _whole(numbers: int) -> Operand:
    return Operand((numbers,))
