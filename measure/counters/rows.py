"""Makes `FlopCount` rows of a counter's numbers: a total, a row per operator, and the calls that were not counted.

`rows` keeps a number in the counter's own unit and adds its FLOP: a multiply-add is 2, any other operation 1. A total's
FLOP are the sum over its operators, because some counters add up both units in one number. `uncounted` takes the calls
that a counter did not count and sorts them by `analysis.operators.registry`. A product (convolution or matrix product)
and an operator in no table are not understood. Other arithmetic is ignored. Views and copies are not listed. The rows
do not say how many FLOP these calls have.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from analysis.counters import ELEMENTS, FLOP_PER_NATIVE
from analysis.operators.registry import PRODUCTS, bucket_of, kind_of
from results.records.counts import FlopCount

Counted = Mapping[tuple[str, str], int | float]
"""(operator, "mac" or "flop") → the counter's own number."""


def rows(blank: FlopCount, counted: Counted) -> list[FlopCount]:
    """Return the row of the total and the rows of the operators, in the order given.

    blank: a row with the counter, the unit of its total (`native_unit`) and the numbers that it reports.
    """
    plain = dataclasses.replace(
        blank, ignored={}, not_understood={}, reason="", parameters=None, printed=None, attention={}
    )
    operators = []
    for (name, unit), native in counted.items():
        value = as_int(native)
        flop = round(FLOP_PER_NATIVE[unit] * value)
        operators.append(dataclasses.replace(plain, operator=name, native_value=value, native_unit=unit, flop=flop))
    total, flop = as_int(sum(counted.values())), sum(row.flop or 0 for row in operators)
    return [dataclasses.replace(blank, native_value=total, flop=flop), *operators]


def sum_counts(parts: Iterable[Counted]) -> dict[tuple[str, str], int | float]:
    """Return the counts of several modules together."""
    sums: dict[tuple[str, str], int | float] = {}
    for counted in parts:
        for key, native in counted.items():
            sums[key] = sums.get(key, 0) + native
    return sums


def add_call(own: Counter[tuple[str, str]], name: str, counted: float, multiply_adds: float) -> None:
    """Add the counter's result for one call to `own`: its multiply-adds, and the rest as a separate entry."""
    if multiply_adds:
        own[name, "mac"] += multiply_adds  # type: ignore[assignment]  # thop counts in floats
    if counted != multiply_adds:
        own[f"{name}{ELEMENTS}" if multiply_adds else name, "flop"] += counted - multiply_adds  # type: ignore[assignment]


def walk_modules(module: torch.nn.Module, closed: Container[type] = ()) -> Iterator[torch.nn.Module]:
    """Yield a module and all modules in it, once for each parent, in the order of `children()`. closed: exact classes
    whose children are left out."""
    yield module
    if type(module) not in closed:
        for child in module.children():
            yield from walk_modules(child, closed)


def as_int(value: float) -> int | float:
    """Return a whole number as int, any other as float."""
    return int(value) if float(value).is_integer() else float(value)


NO_OPERATOR = ("prim.", "profiler.")
"""Beginnings of names that reach the dispatcher and are not operators."""


class UncountedCalls(TorchDispatchMode):
    """Counts the calls of operators while `looks_here` is False: those that the counter does not see."""

    supports_higher_order_operators = True

    def __init__(self, looks_here: Callable[[], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.looks_here = looks_here
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.looks_here():
            self.calls[str(getattr(func, "overloadpacket", func))] += 1
        return func(*args, **(kwargs or {}))


def uncounted(calls: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return (ignored, not understood): operator → calls. calls: by ATen's names, the calls that no rule counted."""
    ignored: Counter[str] = Counter()
    unsupported: Counter[str] = Counter()
    for name, times in calls.items():
        if name.startswith(NO_OPERATOR):
            continue
        if kind_of(name) in ("", *PRODUCTS):
            unsupported[name] += times
        elif bucket_of(name) == "counted":
            ignored[name] += times
    return dict(ignored), dict(unsupported)


NO_ARITHMETIC = frozenset(
    {"Identity", "Dropout", "Dropout2d", "Dropout3d", "Flatten", "StochasticDepth", "Permute", "stochastic_depth"}
)
"""Leaf modules and functions that compute nothing in eval mode: without a rule they are ignored."""


def uncounted_leaves(model: torch.nn.Module, known: Container[type]) -> tuple[Counter[str], Counter[str]]:
    """Return (ignored, not understood): class → calls of leaf modules whose class is not in `known`. Hooks that stay on
    the model fill both while it runs."""
    ignored: Counter[str] = Counter()
    unsupported: Counter[str] = Counter()

    def called(module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        name = type(module).__name__
        (ignored if name in NO_ARITHMETIC else unsupported)[name] += 1

    for module in model.modules():
        if not list(module.children()) and type(module) not in known:
            module.register_forward_hook(called)
    return ignored, unsupported


def recurrent_multiply_adds(module: torch.nn.Module, sequence: torch.Tensor) -> int:
    """Return multiply-adds of one call. module: of RNNBase or RNNCellBase; sequence: its first input."""
    weights = sum(
        weight.numel()
        for name, weight in module.named_parameters()
        if name.startswith(("weight_ih", "weight_hh")) and not name.endswith("_reverse")
    )
    steps = sequence.shape[0] * (sequence.shape[1] if isinstance(module, torch.nn.RNNBase) else 1)
    return weights * steps * (2 if getattr(module, "bidirectional", False) else 1)
