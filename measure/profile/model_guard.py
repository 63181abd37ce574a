"""What a profile must leave as it was, and what is said when the model fails inside of one.

Everything of the model is put back: modes, attributes, gradients, hooks, buffers (running means too) and, where torch
and NumPy draw them, random numbers. With an optimizer the steps are real training: weights, buffers and the optimizer's
state move on by as many steps, and stay so. No function of torch is ever replaced.

Not claimed: what a model's code changes outside of its modules is not undone.
"""

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch

from measure.model.random_state import kept_random
from measure.model.run import tensors
from measure.model.state_snapshot import preserved_state
from results.errors import Inconsistent, Unavailable

_CALLS = ("_call_impl", "_wrapped_call_impl")
"""The functions of torch.nn.Module that run a module's forward."""


class ModelFailed(ValueError):
    """The model, its loss or its optimizer raised. The message says in which module, and what that got."""


@contextlib.contextmanager
def preserve_state(model: torch.nn.Module, inputs: Any = (), *, trains: bool) -> Iterator[None]:
    """Run the model inside; afterwards it and its inputs' gradients are as before. trains: buffers stay as they get."""
    gradients = [(tensor, tensor.grad) for tensor in leaves(inputs)]
    buffers = [] if trains else [(b, b.detach().clone()) for b in model.buffers() if not b.is_meta]
    cards = {p.device for p in model.parameters() if p.device.type == "cuda"}
    random = [(card, torch.cuda.get_rng_state(card)) for card in cards]
    try:
        with preserved_state(model), kept_random():
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for tensor, gradient in gradients:
            tensor.grad = gradient
        for card, state in random:
            torch.cuda.set_rng_state(state, card)


def leaves(inputs: Any) -> list[torch.Tensor]:
    """The tensors among them that a backward pass gives a gradient."""
    return [tensor for tensor in tensors(inputs) if tensor.requires_grad and tensor.is_leaf]


@contextlib.contextmanager
def naming_faults(model: torch.nn.Module) -> Iterator[None]:
    """What the model raises inside becomes ModelFailed, from its cause; running out of memory stays what it is."""
    try:
        yield
    except (Unavailable, Inconsistent, ModelFailed):
        raise
    except Exception as fault:
        place = _place(model, fault.__traceback__)
        if isinstance(fault, MemoryError | torch.OutOfMemoryError):
            fault.add_note(place)
            raise
        text = " ".join(str(fault).split())
        raise ModelFailed(f"{place}: {type(fault).__name__}: {text}") from fault


def _place(model: torch.nn.Module, trace: TracebackType | None) -> str:
    """Which module of the model ran when it was raised, and the sizes of what it got."""
    names = {id(module): path for path, module in model.named_modules()}
    found: tuple[Any, Any, Any] | None = None
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_locals.get("self")
        if frame.f_code.co_name in _CALLS and id(module) in names:
            found = (module, frame.f_locals.get("args", ()), frame.f_locals.get("kwargs", {}))
        trace = trace.tb_next
    if found is None:
        return "the step failed outside of the model's modules"
    module, args, kwargs = found
    path = names[id(module)]
    got = ", ".join(str(tuple(tensor.shape)) for tensor in tensors((args, kwargs))) or "no tensor"
    where = f"module {path} ({type(module).__name__})" if path else f"the model itself ({type(module).__name__})"
    return f"the model failed in {where}, which got {got}"


def paths_below(model: torch.nn.Module, ignored: Any) -> frozenset[str]:
    """Paths of the modules to leave out, and of all below them.

    ignored: classes, their names, or paths. Raises ValueError for what the model does not have.
    """
    named = dict(model.named_modules(remove_duplicate=False))
    roots: set[str] = set()
    for wanted in ignored:
        found = {path for path, module in named.items() if _is_meant(path, module, wanted)}
        if not found:
            name = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", repr(wanted))
            kinds = ", ".join(sorted({type(module).__name__ for module in named.values()}))
            raise ValueError(f"expected a module's class or path to ignore, got {name}; its classes: {kinds}")
        roots |= found
    if "" in roots:
        raise ValueError("expected parts of the model to ignore, got the model itself")
    return frozenset(path for path in named if any(path == root or path.startswith(f"{root}.") for root in roots))


def _is_meant(path: str, module: torch.nn.Module, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return wanted in (path, type(module).__name__)
    return isinstance(wanted, type) and isinstance(module, wanted)
