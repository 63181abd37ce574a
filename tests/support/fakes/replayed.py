"""A training step's own ATen calls, recorded with their arguments and run again in another order."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily
from torch.utils._pytree import tree_leaves, tree_map

from measure.dispatch.schemas import Plan
from measure.operations.tracer import Trace, trace_step
from tests.support.nets.small_steps import Build


@dataclass(frozen=True)
class Name:
    """Stands for a tensor among the arguments."""

    number: int


class Recording(TorchDispatchMode):
    """Calls as (operator, arguments, names of what came out); tensors from before the step, with their values then."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[int]]] = []
        self.given: dict[int, torch.Tensor] = {}
        self.tensors: list[torch.Tensor] = []  # keeps them, so that no id is used twice
        self._numbers: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        named = tree_map(self._name, (args, kwargs))
        out = func(*args, **kwargs)
        if Plan(func).recorded:
            made = [self._number(leaf) for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
            self.calls.append((func, *named, made))
        return out

    def _number(self, tensor: torch.Tensor) -> int:
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return self._numbers[id(tensor)]

    def _name(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        number = self._number(value)
        if (
            number == len(self.tensors) - 1
            and number not in self.given
            and not any(number in made for *_, made in self.calls)
        ):
            with _pop_mode_temporarily():  # the tracer's, which would take this for a part of the step
                self.given[number] = value.detach().clone()
        return Name(number)

    def again(self, order: Sequence[int]) -> dict[int, torch.Tensor]:
        """What the tensors from before the step hold after its calls in this order."""
        known = {number: value.clone() for number, value in self.given.items()}
        with torch.no_grad():
            for index in order:
                func, args, kwargs, made = self.calls[index]
                args, kwargs = tree_map(lambda v: known[v.number] if isinstance(v, Name) else v, (args, kwargs))
                out = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
                known.update(zip(made, out, strict=True))
        return {number: known[number] for number in self.given}


def recorded(build: Build) -> tuple[Recording, Trace]:
    """The calls and the trace of the second step of a real one. All its tensors are kept, and so outlive it."""
    built, seen = build(None), Recording()
    before = [built.step]

    def step(mark: Callable[[str], None]) -> None:
        with contextlib.nullcontext() if before else seen:
            built.step(mark)
        before.clear()

    trace = trace_step(step, model=built.model, optimizer=built.optimizer, inputs=built.inputs)
    return seen, trace
