"""What activation checkpoints compute again, and what of a backward pass only running it can tell.

A checkpoint of torch's (not reentrant) has hooks on the tensors that are saved while it runs. It computes again if the
backward pass asks for one of them, once, and stops after the last: asking for one is enough. Of checkpoints inside one
another, of hooks of somebody else's on saved tensors, and of hooks on gradients nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from measure.fast_count.autograd_reach import NotPredicted, Walk, phase
from measure.fast_count.dispatch_mode import Frame, PredictMode
from measure.model.state_snapshot import modules

_next_number = torch._C._autograd._get_sequence_nr


class Checkpoints:
    """Notes which nodes were made under hooks on saved tensors. `begins` and `ends` stand in for what sets them."""

    def __init__(self, mode: PredictMode) -> None:
        self._mode = mode
        self._open: list[Frame] = []

    def begins(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """In place of the function that sets hooks on saved tensors."""

        def beginning(pack: Any, unpack: Any) -> Any:
            if self._mode.phase == "forward":
                if self._open:
                    self._mode.unpredicted = "hooks on saved tensors inside of others (checkpoints inside one another)"
                elif getattr(pack, "__module__", "") != torch.utils.checkpoint.__name__:
                    self._mode.unpredicted = "hooks on saved tensors"
                frame = Frame(_next_number())
                self._open.append(frame)
                return run(pack, _noticed(unpack, frame))
            return run(pack, unpack)

        return beginning

    def ends(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """In place of the function that takes them away."""

        def ending() -> Any:
            if self._mode.phase == "forward" and self._open:
                frame = self._open.pop()
                frame.end = _next_number()
                self._mode.tape.frames.append(frame)
            return run()

        return ending


def add_recomputation(walk: Walk, mode: PredictMode) -> None:
    """Run what each checkpoint under the walk computes again, by asking for one tensor that it did not save."""
    if not mode.tape.frames:
        return
    numbers = {node._sequence_nr(): node for node in walk.found.nodes}
    for frame in mode.tape.frames:
        with phase(mode, "recompute", ""):
            for number in range(frame.end - 1, frame.begin - 1, -1):
                if number in numbers:
                    _ask(numbers[number], frame)


def _ask(node: Any, frame: Frame) -> None:
    """Ask a node for what it saved until the checkpoint computes it. Numbers are saved as they are, without hooks."""
    for name in dir(node):
        if frame.asked:
            return
        if name.startswith("_saved_"):
            getattr(node, name)


def _noticed(unpack: Callable[[Any], Any], frame: Frame) -> Callable[[Any], Any]:
    def mark_and_unpack(packed: Any) -> Any:
        frame.asked = True
        return unpack(packed)

    return mark_and_unpack


def hooks_set() -> int:
    """How many hooks of any kind were set in this process until now."""
    return int(RemovableHandle.next_id)


def check_predicted(mode: PredictMode, hooks_before: int) -> None:
    """After a forward pass. Raises NotPredicted where its backward pass has to be run: see the module."""
    check_shown(mode)
    if hooks_set() != hooks_before:
        raise NotPredicted("a hook that was set in the forward pass")


def check_shown(mode: PredictMode) -> None:
    """Raises NotPredicted where something was met whose products are not shown, in either pass."""
    if mode.unpredicted:
        raise NotPredicted(mode.unpredicted)


def check_unhooked(model: torch.nn.Module, inputs: Iterable[Any], modules_too: bool) -> None:
    """Before a forward pass. Raises NotPredicted for hooks on gradients of inputs, parameters or modules.

    modules_too: whether the model may have any.
    """
    if any(is_hooked(value) for value in inputs if isinstance(value, torch.Tensor)):
        raise NotPredicted("hooks on the gradients of inputs")
    for module in modules(model) if modules_too else ():
        own = module.__dict__
        if own["_backward_hooks"] or own["_backward_pre_hooks"]:
            raise NotPredicted(f"hooks on the gradients of a {type(module).__name__}")
        if any(is_hooked(parameter) for parameter in own["_parameters"].values() if parameter is not None):
            raise NotPredicted("hooks on the gradients of parameters")


def is_hooked(tensor: torch.Tensor) -> bool:
    """Whether a hook is called with the tensor's gradient."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)
