"""Which products' gradients a backward pass computes: a walk over the graph that autograd made, without running it.

From the outputs that the loss is made of, along the edges to what needs a gradient. A node of a product whose gradients
can be predicted adds them; nodes of operators without products (SAFE) add nothing; any other node is run by itself on
meta gradients, its products recorded, and edges that it returns no gradient for are not followed. Nodes are run in
the order of the engine, last made first, because all gradients of their outputs must be known.

Gradients are taken to be dense. A graph with hooks on gradients is not for a walk: what they do is not known.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from analysis.operators.registry import TABLE
from measure.fast_count.dispatch_mode import PredictMode
from measure.fast_count.product_cost import MAY_HOLD_PRODUCTS, Mask

Edge = tuple[Any, int]
"""(autograd node, which of its outputs)"""

_REDUCTIONS = """
    sum nansum mean nanmean amax amin aminmax max min median nanmedian mode var std var_mean std_mean norm
    linalg_vector_norm prod cumsum cumprod cummax cummin logsumexp logcumsumexp sort topk kthvalue argsort
"""


def _squashed(name: str) -> str:
    return name.partition(".")[2].replace("_", "").lower()


SAFE = frozenset(
    _squashed(name)
    for name, rule in TABLE.items()
    if name.startswith("aten.")
    and (rule.kind not in MAY_HOLD_PRODUCTS or name.partition(".")[2] in _REDUCTIONS.split())
)
"""Operators, without underscores, whose backward pass holds no product."""

_DIGITS = "0123456789"
_NAMED = {"AccumulateGrad": "leaf", "CloneBackward0": "copy", "CopySlices": "slices", "CopyBackwards": "safe"}
_class: dict[type, str] = {}


def class_of(node: Any) -> str:
    """ "safe", "leaf" (a leaf's gradient is accumulated), "copy" (safe, and may be the output of a block that was not
    run), "slices" (something was written into a view) or "other"."""
    kind = type(node)
    found = _class.get(kind)
    if found is None:
        found = _class[kind] = _classify(kind.__name__)
    return found


def _classify(name: str) -> str:
    if name in _NAMED:
        return _NAMED[name]
    numbered = name.removesuffix("_copy")  # NameBackward0, or NameBackward0_copy
    stem = numbered.rstrip(_DIGITS)
    operator = stem.removesuffix("Backward").lower() if stem.endswith("Backward") and stem != numbered else ""
    return "safe" if operator in SAFE else "other"


@dataclass
class Reach:
    """What a walk found. products: (place among the tape's products, which gradients); stopped: edges at which it was
    told to stop; nodes: all nodes passed, but for those that accumulate a leaf's gradient."""

    products: list[tuple[int, Mask]] = field(default_factory=list)
    stopped: set[Edge] = field(default_factory=set)
    nodes: set[Any] = field(default_factory=set)


class NotPredicted(Exception):
    """The backward pass is not known without running it; a walk met a node that must not be run by itself."""


class Walk:
    """A walk that can be continued from more edges.

    stops: edges not to pass. beyond: called with each copy, answers the edges to follow from there where it stands for
    the output of a block that was not run; None for any other. run_others: whether to run nodes that cannot be
    predicted, or raise NotPredicted.
    """

    def __init__(
        self,
        mode: PredictMode,
        stops: Iterable[Edge] = (),
        beyond: Callable[[Any], Iterable[Edge] | None] = lambda _copy: None,
        run_others: bool = True,
    ) -> None:
        self.found = Reach()
        self._mode = mode
        self._stops = frozenset(stops)
        self._beyond = beyond
        self._run_others = run_others
        self._waiting: list[tuple[int, int, Any]] = []
        self._wanted: dict[Any, set[int]] = {}

    def go(self, edges: Iterable[Edge]) -> Reach:
        """Follow these edges, and what they lead to, to the end."""
        stack, stops, passed = list(edges), self._stops, self.found.nodes
        while True:
            while stack:
                edge = stack.pop()
                node = edge[0]
                if node is None:
                    continue
                if stops and edge in stops:
                    self.found.stopped.add(edge)
                elif node not in passed:
                    kind = class_of(node)
                    if kind == "leaf":
                        continue
                    passed.add(node)
                    stack += node.next_functions if kind == "safe" else self._following(node, kind, edge[1])
                elif node in self._wanted:
                    self._wanted[node].add(edge[1])
            if not self._waiting:
                return self.found
            stack.extend(self._run(heapq.heappop(self._waiting)[2]))

    def _following(self, node: Any, kind: str, number: int) -> Iterable[Edge]:
        """The edges to follow from a node of no safe kind that was met for the first time, by one of its outputs."""
        if kind == "copy":
            beyond = self._beyond(node)
            return node.next_functions if beyond is None else beyond
        if kind == "slices" and not self._mode.tape.wrote_unsafely:
            return node.next_functions  # type: ignore[no-any-return]
        return self._product_or_other(node, number)

    def _product_or_other(self, node: Any, number: int) -> Iterable[Edge]:
        tape = self._mode.tape
        place = tape.numbered.get(node._sequence_nr())
        if place is not None and tape.products[place][0].node == type(node).__name__:
            following: tuple[Edge, ...] = node.next_functions
            self.found.products.append((place, tuple([edge[0] is not None for edge in following])))
            return following
        if not self._run_others:
            raise NotPredicted(type(node).__name__)
        self._wanted[node] = {number}
        heapq.heappush(self._waiting, (-node._sequence_nr(), id(node), node))
        return ()

    def _run(self, node: Any) -> list[Edge]:
        """Run one node on meta gradients; the edges along which it returns one."""
        mode, wanted = self._mode, self._wanted[node]
        if any(frame.begin <= node._sequence_nr() < frame.end for frame in mode.tape.frames):
            raise NotPredicted(f"{type(node).__name__} in a checkpoint")  # what it needs would be computed again for it
        custom = isinstance(node, torch.autograd.function.BackwardCFunction)
        with phase(mode, "backward", mode.tape.places.get(node._sequence_nr(), "")):
            gradients = [
                torch.empty(tuple(form.shape), dtype=form.dtype, device="meta") if custom or number in wanted else None
                for number, form in enumerate(node._input_metadata)
            ]
            returned = node.apply(*gradients) if custom else node(*gradients)
        given = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        edges = list(node.next_functions)
        if custom:  # its edges are of tensors alone, its answers of all arguments
            edges = [edge for edge in edges if edge[0] is not None]
            given = [gradient for gradient, asked in zip(given, node.needs_input_grad, strict=False) if asked]
        pairs = [(edge, gradient) for edge, gradient in zip(edges, given, strict=True) if edge[0] is not None]
        if any(gradient is None and _leads_to_function(edge) for edge, gradient in pairs):
            raise NotPredicted("a function of its own behind one that returns no gradient: it is run with zeros")
        return [edge for edge, gradient in pairs if gradient is not None]


def _leads_to_function(edge: Edge) -> bool:
    """Whether a function with a backward pass of its own is behind an edge."""
    stack, passed = [edge[0]], set()
    while stack:
        node = stack.pop()
        if node is None or node in passed:
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        passed.add(node)
        stack += [each[0] for each in node.next_functions]
    return False


@contextlib.contextmanager
def phase(mode: PredictMode, name: str, path: str) -> Any:
    """While a node runs by itself, or a checkpoint computes again, what is recorded belongs to another phase."""
    mode.before_model_code()
    before = mode.phase, mode.path
    mode.phase, mode.path = name, path
    try:
        with mode, torch.no_grad():
            yield
    finally:
        mode.phase, mode.path = before


def edge_of(tensor: torch.Tensor) -> Edge | None:
    """Where a gradient of this tensor goes first; None if it needs none."""
    if not tensor.requires_grad:
        return None
    node = tensor.grad_fn
    return torch.autograd.graph.get_gradient_edge(tensor)[:2] if node is None else (node, tensor.output_nr)


def edges_of(tensors: Iterable[torch.Tensor]) -> list[Edge]:
    """Where the gradients of these tensors go first."""
    return [edge for tensor in tensors if (edge := edge_of(tensor)) is not None]
