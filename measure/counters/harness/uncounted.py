"""The calls that a counter passed over: arithmetic that it leaves out, and what it should have counted.

By `analysis.operators.registry` alone: a product, or an operator that no table knows, is not understood; other
arithmetic is ignored; views and copies are neither. Nothing here says how much was missed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from analysis.operators.registry import PRODUCTS, bucket_of, kind_of

NO_OPERATOR = ("prim.", "profiler.")
"""Begin names of what the dispatcher calls beside operators."""


class UncountedCalls(TorchDispatchMode):
    """Counts the calls of operators that run where the counter does not look; what they do is untouched."""

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
    """(ignored, not understood): operator → calls. calls: of ATen's names, those that no rule counted."""
    ignored: Counter[str] = Counter()
    not_understood: Counter[str] = Counter()
    for name, times in calls.items():
        if name.startswith(NO_OPERATOR):
            continue
        if kind_of(name) in ("", *PRODUCTS):
            not_understood[name] += times
        elif bucket_of(name) == "counted":
            ignored[name] += times
    return dict(ignored), dict(not_understood)
