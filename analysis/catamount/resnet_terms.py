"""What the graphs of Catamount's ResNets do that a step of PyTorch does not, as nodes by term, for any depth and width.

The graphs are tensorpack's (TensorFlow 1.5): images come as bytes, moving averages of loss and errors are kept, the
first convolution's data gets a gradient that nobody uses, every addition's gradient is summed over no axis and
reshaped. There is no weight decay in them; the optimizer of a step here has one, which a term takes off. Rows are
those of the graph of ResNet-18, node by node; those of the others follow from their blocks. Holds for images whose
side is a multiple of 32: Catamount's convolutions have no padding, and halve by rounding down.
"""

from dataclasses import dataclass
from functools import cache

import sympy

from analysis.catamount.graph_nodes import SCALAR, GraphNode, Tensor

BATCH, WIDTH, IMAGE, CLASSES = sympy.symbols("batch width image_size num_classes", integer=True, positive=True)
COLOURS = 3


@dataclass(frozen=True)
class Blocks:
    """Blocks of each stage, and how many times wider than its stage a block's output is: 4 for a bottleneck."""

    stages: tuple[int, int, int, int]
    wider: int


DEPTHS = {
    "resnet18": Blocks((2, 2, 2, 2), 1),
    "resnet34": Blocks((3, 4, 6, 3), 1),
    "resnet50": Blocks((3, 4, 6, 3), 4),
    "resnet101": Blocks((3, 4, 23, 3), 4),
    "resnet152": Blocks((3, 8, 36, 3), 4),
}


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
    def tensors(self) -> int:
        """Parameters: a weight for each convolution, two for each normalisation, two of the linear layer."""
        return 3 * self.convolutions + 2

    @property
    def parameters(self) -> sympy.Expr:
        """Elements of all of them."""
        return self.weights + 2 * self.channels + CLASSES


@cache
def sums(model: str) -> Sums:
    """The sums of one ResNet. Raises KeyError for another model."""
    blocks = DEPTHS[model]
    convolutions, channels = 1, WIDTH
    weights = COLOURS * WIDTH * 49
    added, entering = sympy.Integer(0), WIDTH
    for stage, count in enumerate(blocks.stages):
        inner = WIDTH * 2**stage
        leaving = inner * blocks.wider
        for number in range(count):
            layers = _layers(entering, inner, leaving, shortcut=number == 0 and entering != leaving)
            convolutions += len(layers)
            channels += sum(out for _, out, _ in layers)
            weights += sum(into * out * taps for into, out, taps in layers)
            added += leaving * (IMAGE / (4 * 2**stage)) ** 2
            entering = leaving
    return Sums(convolutions, sum(blocks.stages), channels, weights + entering * CLASSES, sympy.expand(added))


def _layers(
    entering: sympy.Expr, inner: sympy.Expr, leaving: sympy.Expr, shortcut: bool
) -> list[tuple[sympy.Expr, sympy.Expr, int]]:
    """(channels in, channels out, taps) of each convolution of a block."""
    layers = [(entering, inner, 9), (inner, leaving, 9)]
    if inner != leaving:
        layers = [(entering, inner, 1), (inner, inner, 9), (inner, leaving, 1)]
    return layers + ([(entering, leaving, 1)] if shortcut else [])


def nodes(model: str) -> dict[str, tuple[GraphNode, ...]]:
    """Term → its nodes; negative times where it is PyTorch that does more."""
    counted = sums(model)
    added = Tensor((BATCH * counted.added,))
    sizes = (BATCH, IMAGE, IMAGE, COLOURS)
    colour, images, raw = Tensor((COLOURS,)), Tensor(sizes), Tensor(sizes, 1)
    each, flags = Tensor((BATCH,)), Tensor((BATCH,), 1)
    return {
        "scalar variables": (
            GraphNode("Variable", (), (Tensor((), 8),)),  # global step
            GraphNode("Variable", (), (SCALAR,)),  # learning rate
            GraphNode("Buffer", (), (SCALAR,), 12),  # of four moving averages: value, biased value, step
        ),
        "gradient of the images": (
            GraphNode(
                "Conv2DGradInput",
                (_whole(4), Tensor((WIDTH, COLOURS, 7, 7)), Tensor((BATCH, WIDTH, IMAGE / 2, IMAGE / 2))),
                (Tensor((BATCH, COLOURS, IMAGE, IMAGE)),),
            ),
        ),
        "input pipeline": (
            GraphNode("Placeholder", (), (raw,)),
            GraphNode("Placeholder", (), (Tensor((BATCH,)),)),
            GraphNode("Cast", (raw,), (images,)),
            GraphNode("Mul", (images, SCALAR), (images,)),
            GraphNode("Sub", (images, colour), (images,)),
            GraphNode("Div", (images, colour), (images,)),
            GraphNode("Constant", (), (colour,), 2),
            GraphNode("Transpose", (images, _whole(4)), (images,)),
        ),
        "top-1 and top-5 errors": (
            GraphNode("InTopK", (Tensor((BATCH, CLASSES)), each, SCALAR), (flags,), 2),
            GraphNode("LogicalNot", (flags,), (flags,), 2),
            GraphNode("Cast", (flags,), (each,), 2),
            GraphNode("Reduce", (each, SCALAR), (SCALAR,), 2),
        ),
        "moving averages and sizes": _averages(model),
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
            GraphNode("NumLike", (), (Tensor((4 * counted.channels,)),)),
            GraphNode("Constant", (), (SCALAR,), 2 * counted.convolutions),  # how fast running means move
        ),
        "weight decay": (
            GraphNode("Mul", (Tensor((counted.parameters,)),), (Tensor((counted.parameters,)),), -1),
            GraphNode("AddN", (Tensor((counted.parameters,)),) * 2, (Tensor((counted.parameters,)),), -1),
            GraphNode("Scalars", (SCALAR,), (), -counted.tensors),
        ),
        "counts of batches": (
            GraphNode("Add", (SCALAR, SCALAR), (SCALAR,), -counted.convolutions),
            GraphNode("Buffer", (), (Tensor((), 8),), -counted.convolutions),
        ),
        "form of the bias gradient": (GraphNode("Reshape", (Tensor((CLASSES,)), SCALAR), (Tensor((CLASSES,)),), -1),),
    }


def _whole(numbers: int) -> Tensor:
    return Tensor((numbers,))


def _averages(model: str) -> tuple[GraphNode, ...]:
    """Scalars and sizes of the graph, which do not grow with it: 64 operations on scalars; 580 bytes are read, and 560
    written, by these and by what only makes, casts or reshapes a few numbers (averages of loss, errors and queue, the
    gradient of the pooling). And where TensorFlow's linear layer and pooling differ from PyTorch's."""
    pooled = Tensor((BATCH, WIDTH * 8 * DEPTHS[model].wider))
    each = Tensor((BATCH,))
    return (
        GraphNode("ScalarFlop", (), (), 64),
        GraphNode("Scalars", (Tensor((580,), 1),), (Tensor((560,), 1),)),
        GraphNode("Reshape", (pooled, _whole(2)), (pooled,)),
        GraphNode("Scalars", (_whole(2),), ()),  # axes of the pooling
        GraphNode("Div", (each, SCALAR), (each,)),  # of the loss by the batch
    )
