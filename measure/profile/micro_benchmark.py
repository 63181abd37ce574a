"""A step's operations timed one by one, each alone: a micro-benchmark of every distinct call, made while a step runs.

A dispatch mode sees each call. The first of its kind (operator, sizes, dtypes, other arguments) is run again a few
times on copies of its tensors and timed; every call is counted. The sum of counts × times is the step as these would
have it. The step itself goes on as ever: copies take what in-place calls change, random numbers are put back.

Not claimed: that caches are as in the step (copies were just written), nor times of calls that give views alone.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from analysis.operators.registry import kind_of
from measure.timing.clocks import Clock, clock_for
from measure.timing.profiler_ranges import unheard

REPEATS = 5


@dataclass(frozen=True)
class LoneOperation:
    """All calls of one kind. time_s: median of one alone; None where it could not be run again."""

    name: str  # "aten.addmm"
    phase: str
    sizes: str
    calls: int
    time_s: float | None


def time_operations(
    step: Callable[[Callable[[str], None]], Any], device: str, repeats: int = REPEATS
) -> list[LoneOperation]:
    """Run the step once under the mode. Raises what the step raises."""
    mode = _Mode(clock_for(device), repeats)
    with mode:
        step(mode.enter)
    return [LoneOperation(*key[:3], calls=mode.calls[key], time_s=mode.times[key]) for key in mode.calls]


class _Mode(TorchDispatchMode):
    def __init__(self, clock: Clock, repeats: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._repeats = repeats
        self._phase = "optimizer"
        self.calls: dict[tuple[str, str, str, str], int] = {}
        self.times: dict[tuple[str, str, str, str], float | None] = {}

    def enter(self, phase: str) -> None:
        self._phase = phase
        unheard(phase)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.replace("::", ".")
        if kind_of(name) != "view":
            sizes, others = _described((args, kwargs))
            key = (name, self._phase, sizes, others)
            if key not in self.calls:
                self.times[key] = self._call_time_s(func, args, kwargs)
            self.calls[key] = self.calls.get(key, 0) + 1
        return func(*args, **kwargs)

    def _call_time_s(self, func: Any, args: Any, kwargs: Any) -> float | None:
        state = torch.get_rng_state()
        times = []
        try:
            for _ in range(self._repeats + 1):
                copied_args, copied_kwargs = tree_map(_copy, args), tree_map(_copy, kwargs)
                self._clock.synchronize()
                start_s = self._clock.wall_s()
                func(*copied_args, **copied_kwargs)
                self._clock.synchronize()
                times.append(self._clock.wall_s() - start_s)
        except RuntimeError:  # an operator that refuses copies of what it was given
            return None
        finally:
            torch.set_rng_state(state)
        return statistics.median(times[1:])


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _described(arguments: Any) -> tuple[str, str]:
    """Sizes and dtypes of the tensors, and the other arguments, as text."""
    leaves = tree_leaves(arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = " ".join(f"{'x'.join(map(str, t.shape)) or '1'}:{str(t.dtype)[6:]}" for t in tensors)
    return sizes, repr([leaf for leaf in leaves if isinstance(leaf, int | bool | str)])
