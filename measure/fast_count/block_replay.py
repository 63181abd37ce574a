"""Blocks of one structure that get inputs of one form are run once; the others take over what the first one ran.

The first block of its kind leaves a Template: its products, its outputs' sizes, and for each output what a gradient
that arrives there reaches, products and inputs. A replay makes outputs of those sizes, copies of one tensor: by the
node of its copy the walk over the graph finds back to the replay, and from there to the replay's inputs. A block
qualifies only if nothing but its outputs connects it with the rest: no input was written, nothing reached that is not
an input, a parameter or its own, outputs new tensors, and the block itself afterwards as it was before.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from measure.fast_count.autograd_reach import Edge, NotPredicted, Walk, edge_of
from measure.fast_count.block_likeness import Likeness
from measure.fast_count.dispatch_mode import PredictMode
from measure.fast_count.meta_outputs import META
from measure.fast_count.product_cost import Mask, ProductForm

_next_number = torch._C._autograd._get_sequence_nr
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_unseen = torch._C._DisableTorchDispatch
"""Inside of it, no mode sees what runs."""

_PLAIN = (int, float, bool, str, type(None))


class Blocks:
    """Decides for each call of a module whether it runs. `call` has the outputs of a replay, or runs the module."""

    def __init__(self, mode: PredictMode, alike: Likeness) -> None:
        self._alike = alike
        self.replays: list[Replay] = []
        self._mode = mode
        self._templates: dict[Any, Template | Draft | None] = {}
        self._copies: dict[Any, tuple[Replay, int]] = {}

    @property
    def repeated(self) -> list[torch.nn.Module]:
        """The modules whose calls are worth asking for."""
        return self._alike.repeated

    def call(self, run: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        """run: the module's own call."""
        key, tensors = self._key(module, args, kwargs)
        if key is None:
            return run(module, *args, **kwargs)
        # The first call runs and leaves a draft, the second makes a template of it: most blocks occur once, and a
        # template costs a walk over their part of the graph.
        if key not in self._templates:
            return self._first(run, key, module, args, kwargs, tensors)
        template = self._templates[key]
        if isinstance(template, Draft):
            template = self._templates[key] = self._template(template)
        return run(module, *args, **kwargs) if template is None else self._replay(template, tensors)

    def passed_edges(self, copy: Any) -> Iterable[Edge] | None:
        """For a walk: the edges of the inputs that a replay passes a gradient on to, if this node stands for one."""
        stands = self._copies.get(copy)
        if stands is None:
            return None
        replay, output = stands
        replay.wanted.add(output)
        return replay.onwards(output)

    def _key(self, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
        """(what tells this call from others, its tensors); None for a call that must run."""
        tensors: dict[int, torch.Tensor] = {}
        # A template is made of one forward pass. In a backward pass, or under hooks on saved tensors (checkpoints), the
        # same call makes other nodes, so that its products would belong to other gradients.
        if self._mode.phase != "forward" or self._mode.engine_ran or _top_hooks(True) is not None:
            return None, []
        built = None if torch.is_inference_mode_enabled() else self._alike.of(module)
        if built is None:
            return None, []
        parts = [_described(value, tensors) for value in (*args, *kwargs.values())]
        if None in parts:
            return None, []
        return (built, tuple(parts), tuple(kwargs), torch.is_grad_enabled()), list(tensors.values())

    def _first(
        self, run: Any, key: Any, module: torch.nn.Module, args: Any, kwargs: Any, tensors: list[torch.Tensor]
    ) -> Any:
        """Run the block, and keep a draft of it if it qualifies."""
        tape, start = self._mode.tape, _next_number()
        began, before = len(tape.products), Counter(tape.not_understood)
        replayed, before_it = len(self.replays), (len(tape.executed), len(tape.frames))
        versions = [tensor._version for tensor in tensors]
        lists = [list(value) for value in (*args, *kwargs.values()) if isinstance(value, (list, tuple))]
        inputs = [edge_of(tensor) for tensor in tensors]
        out = run(module, *args, **kwargs)
        self._templates[key] = None  # unless it qualifies below, every such call runs
        now = [list(value) for value in (*args, *kwargs.values()) if isinstance(value, (list, tuple))]
        untouched = versions == [tensor._version for tensor in tensors] and _same(lists, now)
        beyond_it = before_it != (len(tape.executed), len(tape.frames))
        # A block that wrote to its inputs, ran a backward pass or changed itself has effects that a replay lacks.
        if not untouched or beyond_it or self._alike.of(module) != key[0]:
            return out
        leaves, tree = tree_flatten(out)
        outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        others = tuple(None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves)
        if all(other is None or type(other[0]) in _PLAIN for other in others) and _new(outputs, tensors):
            self._templates[key] = Draft(
                self._mode.path, inputs, [edge_of(tensor) for tensor in outputs],
                tuple((tuple(t.shape), t.stride(), t.dtype, t.requires_grad) for t in outputs), (others, tree),
                start, (began, len(tape.products)), self.replays[replayed:], tape.not_understood - before,
            )  # fmt: skip
        return out

    def _template(self, draft: Draft) -> Template | None:
        """What a block that ran leaves to others; None if it does not qualify."""
        path, (began, ended) = draft.path, draft.products
        below = len(path) + 1 if path else 0
        products = [(form, where[below:]) for form, where in self._mode.tape.products[began:ended]]
        new, bases = Counter(draft.not_understood), {}
        for replay in draft.nested:
            bases[replay] = len(products)
            products += [(form, _join_path(replay.path, where)[below:]) for form, where in replay.template.products]
            new += replay.template.not_understood
        # Two inputs may have one edge: its first place stands for both, which is why the list is reversed. Inputs that
        # need no gradient have none.
        positions = {edge: i for i, edge in reversed(list(enumerate(draft.inputs))) if edge is not None}
        reached = []
        for output in draft.outputs:
            found = self._reach(output, positions, draft.start, began, bases)
            if found is None:
                return None
            reached.append(found)
        return Template(tuple(products), new, draft.forms, draft.rest, tuple(reached))

    def _reach(
        self, output: Edge | None, positions: dict[Edge, int], start: int, began: int, nested: dict[Replay, int]
    ) -> tuple[frozenset[tuple[int, Mask]], frozenset[int]] | None:
        """Products and inputs that a gradient of this output reaches; None if it reaches anything else."""
        touched: dict[Replay, set[int]] = {}

        def follow(copy: Any) -> Iterable[Edge] | None:
            stands = self._copies.get(copy)
            if stands is None:
                return None
            replay, number = stands
            touched.setdefault(replay, set()).add(number)
            return replay.onwards(number)

        walk = Walk(self._mode, positions, follow, run_others=False)
        try:
            found = walk.go([] if output is None else [output])
        except NotPredicted:
            return None
        # Nodes are numbered as they are made. A number below the start is that of a node outside of the block: then the
        # block depends on a tensor that is not among its arguments, and another call may have another one there.
        barred = {node for node, _ in positions}
        for node in found.nodes:
            number = node._sequence_nr()
            if node in barred or (number < start and type(node).__name__ != "AccumulateGrad"):
                return None
        # A replay from outside of the block, reached without passing an input, is such a dependence, too.
        if any(replay not in nested for replay in touched):
            return None
        products = {(place - began, mask) for place, mask in found.products}
        for replay, numbers in touched.items():
            for number in numbers:
                products |= {(nested[replay] + i, mask) for i, mask in replay.template.reached[number][0]}
        return frozenset(products), frozenset(positions[edge] for edge in found.stopped)

    def _replay(self, template: Template, tensors: list[torch.Tensor]) -> Any:
        """The outputs of a block that is not run."""
        mode = self._mode
        replay = Replay(template, mode.path, [edge_of(tensor) for tensor in tensors])
        self.replays.append(replay)
        # Autograd's engine must not run from here on: the nodes of this block are missing from the graph.
        mode.left_out = True
        if template.not_understood:
            mode.tape.not_understood += template.not_understood
        made = [self._output_copy(replay, number, *how) for number, how in enumerate(template.outputs)]
        others, tree = template.rest
        if len(made) == len(others) == 1 and tree.is_leaf():
            return made[0]
        values = iter(made)
        return tree_unflatten([next(values) if other is None else other[0] for other in others], tree)

    def _output_copy(
        self, replay: Replay, number: int, size: Any, stride: Any, dtype: Any, needs: bool
    ) -> torch.Tensor:
        """One output. A copy, because what follows may work in place on it, as it may not on a leaf."""
        with _unseen():
            if not needs:
                return torch.empty_strided(size, stride, dtype=dtype, device=META)
            original = replay.template.originals.get(number)
            if original is None:
                original = torch.empty_strided(size, stride, dtype=dtype, device=META, requires_grad=True)
                replay.template.originals[number] = original
            out = original.clone()
            if out.grad_fn is None:  # the block had turned gradients on for itself
                with torch.enable_grad():
                    out = original.clone()
        self._copies[out.grad_fn] = replay, number
        return out


def _described(value: Any, tensors: dict[int, torch.Tensor]) -> Any:
    """An argument as something to compare; None for what may have a state. Which tensors are one is part of it.

    tensors: those that were described before, each once; this call adds to them.
    """
    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or not value.is_meta or value.layout is not torch.strided:
            return None
        if id(value) in tensors:
            return list(tensors).index(id(value))
        tensors[id(value)] = value
        return value.shape, value.stride(), value.dtype, value.requires_grad
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        parts = [_described(part, tensors) for part in value]
        return None if None in parts else (type(value), *parts)
    return (type(value), value) if type(value) in _PLAIN else None


def _same(before: list[list[Any]], now: list[list[Any]]) -> bool:
    """Whether lists that were passed hold the same objects as before."""
    return len(before) == len(now) and all(
        len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
        for one, other in zip(before, now, strict=True)
    )


def _new(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> bool:
    """Whether all outputs are plain new tensors, none a view of another one or of an input."""
    bases = [tensor if tensor._base is None else tensor._base for tensor in outputs]
    given = {id(base) for t in inputs for base in (t, t if t._base is None else t._base)}
    apart = len({id(base) for base in bases}) == len(bases) and not any(id(base) in given for base in bases)
    kinds = all(type(t) is torch.Tensor and t.is_meta and t.layout is torch.strided for t in outputs)
    return apart and kinds and all(base.grad_fn is not None or not base.requires_grad for base in bases)


def _join_path(path: str, below: str) -> str:
    return f"{path}.{below}" if path and below else path or below


@dataclass(eq=False)
class Template:
    """What one block ran. products: (form, module path below the block's own). outputs: sizes, strides, dtype and
    whether it needs a gradient, of each tensor. reached: for each output, (products with the gradients asked for,
    positions of inputs). backward_flops: outputs that a gradient arrives at → model FLOP of the backward pass.
    originals: outputs that need a gradient, by their places, of which each replay has a copy."""

    products: tuple[tuple[ProductForm, str], ...]
    not_understood: Counter[tuple[str, str]]
    outputs: tuple[tuple[Any, ...], ...]
    rest: tuple[Any, Any]
    reached: tuple[tuple[frozenset[tuple[int, Mask]], frozenset[int]], ...]
    backward_flops: dict[frozenset[int], int] = field(default_factory=dict)
    originals: dict[int, torch.Tensor] = field(default_factory=dict)

    @functools.cached_property
    def forward_flop(self) -> int:
        """Model FLOP of its forward pass."""
        return sum(form.forward[1] for form, _ in self.products)


@dataclass(eq=False)
class Replay:
    """A block that was not run. wanted: outputs that a gradient arrives at. inputs: edges of its input tensors."""

    template: Template
    path: str
    inputs: list[Edge | None]
    wanted: set[int] = field(default_factory=set)

    def onwards(self, output: int) -> list[Edge]:
        """The edges of the inputs that a gradient of this output reaches."""
        return [edge for i in self.template.reached[output][1] if (edge := self.inputs[i]) is not None]

    def products(self) -> frozenset[tuple[int, Mask]]:
        """Places among the template's products, and which gradients of them are computed."""
        return frozenset().union(*(self.template.reached[output][0] for output in self.wanted))

    def backward_flop(self) -> int:
        """Model FLOP of its backward pass; the same for all replays of which a gradient arrives at the same outputs."""
        known, wanted, products = self.template.backward_flops, frozenset(self.wanted), self.template.products
        if wanted not in known:
            known[wanted] = sum(products[place][0].backward_flop(mask) for place, mask in self.products())
        return known[wanted]


@dataclass(eq=False)
class Draft:
    """What is kept of a block that ran, until one like it is called and a Template is made: most never are.

    inputs, outputs: edges; forms: as a template's outputs; start: number of the first autograd node; products: places
    on the tape, from and to; nested: replays inside.
    """

    path: str
    inputs: list[Edge | None]
    outputs: list[Edge | None]
    forms: tuple[tuple[Any, ...], ...]
    rest: tuple[Any, Any]
    start: int
    products: tuple[int, int]
    nested: list[Replay]
    not_understood: Counter[tuple[str, str]]
