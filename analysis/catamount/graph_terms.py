"""What the graphs that Catamount counted do and a step of PyTorch does not: named terms, to be added on top of `RULES`.

A term is a group of a graph's operations: its FLOP, bytes and footprint follow from Catamount's rules on these nodes
(`graph_nodes.py`), which are listed in `catamount_graphs.csv` (read off the graphs in Catamount's repository) and
`resnet_terms.py`; nothing is fitted. A node with negative times is one that PyTorch's step has and the graph has
not. "Scalars" are the bytes, and "ScalarFlop" the operations, of nodes on single numbers and on sizes of tensors.

Terms are functions of the model's sizes and the batch, but hold for the graph's own number of layers (`FIXED`), the
ResNets' for images whose side is a multiple of 32, and speech's for frames that are a multiple of 4.
"""

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sympy

from analysis.catamount import resnet_terms
from analysis.catamount.graph_nodes import GraphNode, Tensor, flop, footprint_of, parameters, traffic

GRAPHS = Path(__file__).with_name("catamount_graphs.csv")

QUANTITIES = ("parameters", "flop", "bytes", "footprint")

FIXED = {"wordlm": {"layers": 2}, "charlm": {"depth": 10}}
"""Model → sizes that its terms do not depend on, because the graph has one value of them only: terms hold there."""

WHY = {
    "scalar variables": "the step counter and the learning rate (in speech the average loss) are variables: two more"
    " parameters, one in nmt, and an addition to the counter",
    "gradient clipping": "gradients are clipped by their global norm: an L2 loss each, which Catamount counts as 3"
    " FLOP whatever its length (a fault: it is 2N + 1), and a multiplication each",
    "gradient accumulators": "the sums of gradients over time steps begin with constants of zeros",
    "weight updates": "an embedding's rows are subtracted where its gradient is made, so that PyTorch's dense update"
    " is taken off; a layer's two matrices are one, and its scalar rate is read once",
    "mask of padding": "states, labels and gradients pass through a boolean mask of what is not padding, though nothing"
    " is",
    "inputs": "placeholders are written once each: tokens, labels, and the state that each layer begins with",
    "gradient of the softmax bias": "the gradient of logits + bias is summed over no axis on one side and over the rows"
    " on the other, and PyTorch's forms of the logits are views that count as copies here",
    "embedding": "sizes for the gradient of the lookup",
    "reshape of states": "sizes for the reshape of states before the softmax layer",
    "loss": "the mean is a sum, a size and divisions of scalars, each with a gradient",
    "gradients of sums and products": "TensorFlow sums and reshapes the gradient of both sides of a sum or product,"
    " broadcast or not, adds several gradients in one node where PyTorch adds two by two, and adds the first time"
    " step's to zeros",
    "loop": "the while loop: batch-first tensors are transposed and back, output states filled with zeros, time steps"
    " numbered and counted",
    "gradients and attention": "as gradients of sums and products, in the loop that attends: masked memory, state that"
    " is carried through, the loop's own zeros",
    "dropout": "dropout divides before it multiplies, and the gradient of a division is four nodes and their sums",
    "sequence lengths": "sentences have lengths: in each step states are selected by whether they ended, scores are"
    " masked, one direction is reversed",
    "products of three dimensions": "a product with a tensor of three dimensions (Tensordot) transposes and reshapes"
    " the matrix and its gradient",
    "copies that only PyTorch makes": "what PyTorch's step writes and the graph does not: zero states, views that count"
    " as copies, a bias of zeros",
    "stored means and deviations": "of the sound: variables in the graph, and so parameters; buffers in PyTorch",
    "normalisation of the sound": "forms of means and deviations, and what keeps the deviations from zero",
    "noise and own letters": "weights get noise, and letters are drawn, at every step; PyTorch's draws differ a little",
    "pooling over time": "the graph's window is one step, PyTorch's two; lengths are halved with it",
    "convolution of the weights": "a convolution in one dimension is one in two, with reshapes around it; the graph"
    " pads nothing and its first step has a gradient",
    "loss and sums of gradients": "what is shared by several consumers gets its gradients added in one node, in the"
    " loops too; the loss masks letters, and divides by the batch",
    "encoder": "layers in two directions with lengths: states that ended are selected, sequences are reversed, cell and"
    " output are joined as one state",
    "gradient of the images": "the first convolution's data gets a gradient, which no update uses: Catamount counts"
    " what no fetch asks for (a fault)",
    "input pipeline": "images come as bytes: cast, scaled, normalised, transposed",
    "top-1 and top-5 errors": "the training graph computes them, too",
    "moving averages and sizes": "of loss, errors and queue length; sizes for the gradient of the pooling",
    "gradients of the residual sums": "TensorFlow sums over no axis and reshapes the gradient of both sides",
    "sizes for the gradients of convolutions": "each reads the sizes of data and filter as tensors",
    "outputs of normalisations that nobody uses": "four gradients of zeros each, and how fast the running means move",
    "weight decay": "the graph has none; PyTorch's step has it for every parameter, and it is taken off",
    "counts of batches": "PyTorch's normalisations count their batches, the graph's do not",
    "form of the bias gradient": "a view in PyTorch, which counts as a copy",
}
"""Term → why there is one, in every graph that has it."""


@dataclass(frozen=True)
class Term:
    """One quantity of a group of nodes. formula: sympy parses it; its symbols are the workload's sizes and `batch`."""

    name: str
    quantity: str
    formula: str
    why: str


@cache
def terms(model: str) -> tuple[Term, ...]:
    """The terms of a model, those that are zero left out; none for a model that Catamount has no graph of."""
    found = nodes(model)
    return tuple(
        Term(name, quantity, text, WHY[name])
        for name, group in found.items()
        for quantity, text in zip(QUANTITIES, _quantities(group), strict=True)
        if text != "0"
    )


@cache
def nodes(model: str) -> dict[str, tuple[GraphNode, ...]]:
    """Term → the nodes it sums."""
    if model in resnet_terms.DEPTHS:
        return resnet_terms.nodes(model)
    found: dict[str, tuple[GraphNode, ...]] = {}
    with GRAPHS.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] == model:
                found[row["term"]] = (*found.get(row["term"], ()), _node(row))
    return found


def _quantities(group: tuple[GraphNode, ...]) -> tuple[str, ...]:
    counted = (parameters(group), flop(group).all_flop, sum(traffic(group)), footprint_of(group))
    return tuple(str(sympy.expand(each)) for each in counted)


def _node(row: dict[str, str]) -> GraphNode:
    return GraphNode(row["operation"], _tensors(row["inputs"]), _tensors(row["outputs"]), _parsed(row["times"]))


_TENSOR = re.compile(r"\[([^\]]*)\](?::(\d))?")


def _tensors(text: str) -> tuple[Tensor, ...]:
    """Tensors as `[batch,seq]:8`: sizes, and bytes of an element where these are not 4."""
    found = _TENSOR.findall(text)
    return tuple(
        Tensor(tuple(map(_parsed, sizes.split(",") if sizes else ())), int(width or 4)) for sizes, width in found
    )


@cache
def _parsed(text: str) -> sympy.Expr:
    names = re.findall(r"[a-z_]+", text)
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in names}
    return sympy.sympify(text, locals=symbols)
