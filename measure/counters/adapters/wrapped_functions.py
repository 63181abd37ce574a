"""Listens to the counters that wrap torch's functions: DeepSpeed's flops profiler and calflops, which began as a copy.

Both replace F.linear, torch.matmul, … by functions that ask a rule for (FLOP, multiply-adds) and then run the original,
and put hooks with rules of their own on recurrent modules. Their rules do all counting; here each is listened to, and
given to the module whose forward made the call. "F.conv2d" holds two FLOP for each multiply-add that the rule gave,
"F.conv2d elementwise" the rest, its bias additions; a function for which it gave none has one row. Recurrent layers
and einsum have no multiply-adds by their rules: a layer's are taken from its weights, an einsum's row is all it gave.

A product that runs in no wrapped function is listed as not understood, other arithmetic as ignored, as is a function
whose rule says 0. torch's functions are put back whatever happens: calflops leaves torch.baddbmm wrapped, and an
exception in the model all of them, so that its next count would be twice too large.
"""

import contextlib
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from analysis.utilization.counter_operators import ELEMENTS
from measure.counters.rows import UncountedCalls, recurrent_multiply_adds, uncounted
from measure.model.module_paths import ModulePaths

Owners = Mapping[str, Any]
"""What a function is called with ("F", "torch") → the module or class that has it."""

TORCH: Owners = {"F": F, "torch": torch, "Tensor": torch.Tensor}


class FunctionListener:
    """What a library's rules count, by path of the module. `unseen`, entered, sees the operators that none counted.

    library: the module with `wrapFunc` and MODULE_HOOK_MAPPING. paths: of the modules, while the model runs.
    """

    def __init__(self, library: ModuleType, model: torch.nn.Module, paths: ModulePaths, owners: Owners) -> None:
        self.own: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._library: Any = library
        self._owners = owners
        self._paths = paths
        self._first_path = {id(module): path for path, module in model.named_modules()}
        self._recurrent = {
            p for p, m in model.named_modules(remove_duplicate=False) if type(m) in self._library.MODULE_HOOK_MAPPING
        }
        self._names = _names(owners)
        self._inside = 0  # wrapped functions that run now
        self._zero: Counter[str] = Counter()  # calls whose rule said 0
        self.unseen = UncountedCalls(lambda: self._inside > 0 or paths.current in self._recurrent)

    def uncounted(self) -> dict[str, Any]:
        """Fields of FlopCount, `ignored` and `not_understood`: operator or function → calls."""
        ignored, not_understood = uncounted(self.unseen.calls)
        return {"ignored": {**self._zero, **ignored}, "not_understood": not_understood}

    @contextlib.contextmanager
    def listening(self, *stacks: list[Any]) -> Iterator[None]:
        """The library's rules, listened to while it wraps torch; afterwards it and torch are as they were.

        stacks: the library's own lists of what runs, left behind by an exception.
        """
        wrap, hooks = self._library.wrapFunc, dict(self._library.MODULE_HOOK_MAPPING)
        before = {label: dict(vars(owner)) for label, owner in self._owners.items()}
        self._library.wrapFunc = lambda function, rule, *more: self._wrapped(wrap, function, rule, *more)
        self._library.MODULE_HOOK_MAPPING.update({kind: self._hook(rule) for kind, rule in hooks.items()})
        try:
            yield
        finally:
            self._library.wrapFunc = wrap
            self._library.MODULE_HOOK_MAPPING.update(hooks)
            for label, owner in self._owners.items():
                _put_back(owner, before[label])
            for stack in stacks:
                stack.clear()

    def _wrapped(self, wrap: Callable[..., Any], function: Any, rule: Callable[..., Any], *more: Any) -> Any:
        """The library's wrapper around a function, its rule listened to."""
        name = self._names[id(function)]

        def listen(*args: Any, **kwargs: Any) -> tuple[int, int]:
            flop, mac = rule(*args, **kwargs)
            self._add(self._paths.current, name, flop, mac)
            return flop, mac

        def run(*args: Any, **kwargs: Any) -> Any:
            self._inside += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._inside -= 1

        run.__str__ = function.__str__  # type: ignore[method-assign]  # the libraries' key of a function
        return wrap(run, listen, *more)

    def _hook(self, rule: Callable[..., None]) -> Callable[..., None]:
        """The library's rule for one kind of module, listened to."""

        def listen(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
            before = module.__flops__
            rule(module, inputs, output)
            name = type(module).__name__
            mac = recurrent_multiply_adds(module, inputs[0])
            self._add(self._first_path[id(module)], name, module.__flops__ - before, mac)

        return listen

    def _add(self, path: str, name: str, flop: int, mac: int) -> None:
        """Adds one call."""
        if not flop:
            self._zero[name] += 1
            return
        own = self.own[path]
        if mac:
            own[name, "flop"] += 2 * mac
        if flop != 2 * mac:
            beside = mac or name.startswith("F.conv")  # calflops finds no multiply-add in a depthwise transposed one
            own[f"{name}{ELEMENTS}" if beside else name, "flop"] += flop - 2 * mac


def _names(owners: Owners) -> dict[int, str]:
    """Identity of a function → "F.linear". One that several have is called by the first."""
    names: dict[int, str] = {}
    for label, owner in owners.items():
        for name in dir(owner):
            names.setdefault(id(inspect.getattr_static(owner, name, None)), f"{label}.{name}")
    return names


def _put_back(owner: Any, before: Mapping[str, Any]) -> None:
    """A module's or class's functions as they were. What a class only inherits is not its own afterwards."""
    now = dict(vars(owner))
    for name, value in before.items():
        if callable(value) and now.get(name) is not value:
            setattr(owner, name, value)
    if isinstance(owner, type):
        for name in now.keys() - before.keys():
            delattr(owner, name)
