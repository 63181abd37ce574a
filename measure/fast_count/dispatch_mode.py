"""The dispatch mode that a predicted pass runs under: every product noted, no kernel run that need not.

The pass runs on meta tensors with autograd on, so that autograd itself says what needs a gradient and what leads where.
An operator that reaches the mode is run in one of five ways: a view by its own kernel; an in-place operator returns its
argument; what `outputs.SHORT` knows is made; what ran before with the same signature is made again; anything else runs.
A product's form (`product_cost.py`) is noted with the number of its autograd node. An operator that no rule of
`analysis.operators.registry` understands is counted by name. Tensors that a model makes on another device than meta
join in by their sizes. Values are nowhere: an operator that needs one raises what PyTorch raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from analysis.operators import registry
from measure.dispatch.schemas import Plan, sparse, sparse_name
from measure.fast_count.meta_outputs import META, SHORT
from measure.fast_count.product_cost import MAY_HOLD_PRODUCTS, ProductForm, Share, form_of, shapes_before
from measure.fast_count.signatures import NotMeta, how_made, join_devices, key_of, make, on_meta
from measure.model.module_paths import in_checkpoint

_next_number = torch._C._autograd._get_sequence_nr
_current_node = torch._C._current_autograd_node
_grad = torch.is_grad_enabled

LARGEST_REAL = 2**16
"""Elements that a tensor may have which a model makes on another device; larger ones are made on meta."""

Run = Callable[["PredictMode", Any, tuple[Any, ...], dict[str, Any]], Any]


class EngineRan(Exception):
    """Autograd's engine ran inside of the forward pass, which blocks and layers that were left out would falsify."""


@dataclass
class Frame:
    """One checkpoint: the numbers of the nodes that were made in it, from and to; whether it computed them again."""

    begin: int
    end: int = 0
    asked: bool = False


@dataclass
class Tape:
    """What a pass ran. products: (form, module); numbered: number of an autograd node → its place among products.

    executed: what ran in nodes whose gradients cannot be predicted, (phase, module, form).
    not_understood: (phase, operator) → calls.
    places: number of a node → the module it belongs to, kept where rows are asked for. frames: of the
    checkpoints. wrote_unsafely: whether an operator was run
    in place whose backward pass may hold products.
    """

    products: list[tuple[ProductForm, str]] = field(default_factory=list)
    numbered: dict[int, int] = field(default_factory=dict)
    executed: list[tuple[str, str, ProductForm]] = field(default_factory=list)
    not_understood: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: dict[int, str] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    wrote_unsafely: bool = False


class PredictMode(TorchDispatchMode):
    """See the module. phase: "forward", or "backward" while a node is run by itself. depth: modules running inside.
    left_out: whether anything was not run that autograd's engine would need. unpredicted: why the
    backward pass cannot be known without running it; "" if it can."""

    def __init__(self, tape: Tape, keep_places: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape
        self.phase = "forward"
        self.path = ""
        self.depth = 0
        self.left_out = False
        self.engine_ran = False
        self.unpredicted = ""
        self.before_model_code: Callable[[], None] = lambda: None
        self._keep_places = keep_places
        self._known = _KNOWN.setdefault(torch.get_default_dtype(), {})

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the guard costs a microsecond a call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            return NotImplemented  # tensors that hold tensors of their own run first
        run = self._known.get(func)
        if run is None:
            run = self._known[func] = _learn(func)
        if self._keep_places:
            self.tape.places.setdefault(_next_number() - 1, self.path)
        if self.phase == "forward" and _current_node() is not None:
            self.engine_runs()
        return run(self, func, args, kwargs or {})

    def engine_runs(self) -> None:
        """Autograd's engine is at work. Raises EngineRan if that is too late in the forward pass."""
        if self.phase == "forward":
            self.engine_ran = True
            if self.left_out:
                raise EngineRan

    def outside(self, name: str) -> None:
        """Work begins that no mode is shown."""
        self.unpredicted = f"work that is not shown ({name})"

    def runs_in(self) -> str:
        """The phase of what runs now."""
        again = self.phase != "forward" and (self.depth or in_checkpoint())
        return "recompute" if again else self.phase

    def note(self, form: ProductForm) -> None:
        """A product ran."""
        tape, path = self.tape, self.path
        if self._keep_places and (node := _current_node()) is not None:
            path = tape.places.get(node._sequence_nr(), path)
        if self.phase != "forward":
            tape.executed.append((self.runs_in(), path, form))
            return
        if _grad():
            number = _next_number() - 1
            tape.numbered.setdefault(number, len(tape.products))  # one without a node finds the number of another
        tape.products.append((form, path))


_KNOWN: dict[torch.dtype, dict[Any, Run]] = {}
"""Default dtype → operator → how to run it. What an operator makes of numbers depends on the default dtype."""


def clear_cache() -> None:
    """Forget operators and signatures, as in a new process. Only benchmarks and tests need it."""
    _KNOWN.clear()


def _learn(func: Any) -> Run:
    """How to run an operator; decided once."""
    plan = Plan(func)
    rule = registry.rule_of(plan.name)
    if rule is not None and rule.kind in registry.PRODUCTS and rule.bucket == "counted":
        run: Run = _product(plan)
    elif not isinstance(func, torch._ops.OpOverload):
        run = _plainly
    else:
        run = _ordinary(func, plan)
    if plan.name.endswith("_") and (rule is None or rule.kind in MAY_HOLD_PRODUCTS):
        run = _unsafely(run)
    return run if rule is not None or not plan.recorded else _not_understood(plan.name, run)


def _ordinary(func: Any, plan: Plan) -> Run:
    """An operator that is no product."""
    if plan.returns_self:
        return _in_place
    if plan.dynamic or plan.name.endswith("_") or any(r.alias_info is not None for r in func._schema.returns):
        return _plainly
    if not any("Tensor" in str(argument.type) for argument in func._schema.arguments):
        return _factory
    short = SHORT.get(func)
    return _made_again(plan) if short is None else _shortly(short, _made_again(plan))


def _plainly(_mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _unsafely(run: Run) -> Run:
    def marked(mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
        mode.tape.wrote_unsafely = True
        return run(mode, func, args, kwargs)

    return marked


def _not_understood(name: str, run: Run) -> Run:
    def count_call(mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
        mode.tape.not_understood[mode.runs_in(), name] += 1
        return run(mode, func, args, kwargs)

    return count_call


def _in_place(_mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Only values change; what does not fit is left to the kernel, which says so."""
    target = args[0]
    fits = target.is_meta and all(
        other.dim() == 0 or other.shape == target.shape for other in args[1:] if isinstance(other, torch.Tensor)
    )
    if fits and not kwargs.keys() - {"alpha", "value", "generator", "rounding_mode", "non_blocking"}:
        return target
    if target.is_meta:
        return func(*on_meta(args), **on_meta(kwargs))
    return func(*args, **kwargs)


def _factory(_mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
    """A new tensor: small ones where the model wants them, so that it may read them; the rest on meta."""
    device = kwargs.get("device")
    if device == META:
        return func(*args, **kwargs)
    size = args[0] if args and isinstance(args[0], (list, tuple)) else ()
    numbers = [abs(a) for a in args if isinstance(a, (int, float)) and not isinstance(a, bool)]
    large = prod(size) > LARGEST_REAL or any(number > LARGEST_REAL for number in numbers)
    if large or (device is not None and torch.device(device).type != "cpu"):
        kwargs = {**kwargs, "device": META}
    return func(*args, **kwargs)


def _shortly(short: Callable[..., Any], otherwise: Run) -> Run:
    def run(mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
        out = short(*args, **kwargs)
        return otherwise(mode, func, args, kwargs) if out is None else out

    return run


def _made_again(plan: Plan) -> Run:
    """Run once for each signature; then make the outputs from what they were."""
    known: dict[Any, Any] = {}

    def run(_mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            key = (key_of(args), key_of(kwargs.items())) if kwargs else key_of(args)
            made = known.get(key)
        except NotMeta:
            return join_devices(func, args, kwargs)
        except TypeError:  # an argument that has no hash (a generator)
            return func(*args, **kwargs)
        if made is not None:
            return make(made)
        out = func(*args, **kwargs)
        made = how_made(out)
        if made is not None:
            known[key] = made
        return out

    return run


def _product(plan: Plan) -> Run:
    """Run once for each signature, and note the form each time."""
    known: dict[Any, ProductForm] = {}
    again = not plan.dynamic and not plan.resizes

    def run(mode: PredictMode, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            key = (key_of(args), key_of(kwargs.items())) if kwargs else key_of(args)
        except NotMeta:
            if sparse((*args, *kwargs.values())):
                mode.tape.not_understood[mode.runs_in(), sparse_name(plan.name)] += 1
                return func(*args, **kwargs)
            return run(mode, func, on_meta(args), on_meta(kwargs))
        form = known.get(key) if again else None
        if form is not None and form.made is not None:
            mode.note(form)
            return args[0] if plan.returns_self else make(form.made)
        shapes = shapes_before(args, kwargs)
        out = func(*args, **kwargs)
        form = form_of(plan, args, kwargs, shapes, out)
        form.made = how_made(out)
        if again:
            known[key] = form
        mode.note(form)
        return out

    return run


__all__ = ["EngineRan", "PredictMode", "Share", "Tape", "clear_cache"]
