"""Work of a step that the dispatcher does not show: what a thread of the model's own does, and what NumPy does.

Dispatch modes are of one thread, and NumPy's products are none of torch's operators. Neither can be counted; both can
be noticed where they begin, so that no total is told of a step that has them.

Not noticed: threads that were started before and take work from a queue of their own, and calculations with numbers
that Python holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

import torch

THREAD, ARRAY = "threading.Thread", "torch.Tensor.numpy"
"""What stands in the table of operations for such work: names that no rule counts."""


@contextlib.contextmanager
def noticed(notice: Callable[[str], None]) -> Iterator[None]:
    """Calls `notice` with THREAD where this thread gives work to another one, and with ARRAY where it makes an array
    of a tensor of floating-point or complex numbers."""
    home = get_ident()

    def watched_call(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if get_ident() == home:
                notice(THREAD)
            return run(*args, **kwargs)

        return call

    def watched_conversion(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if get_ident() == home and (tensor.is_floating_point() or tensor.is_complex()):
                notice(ARRAY)
            return run(tensor, *args, **kwargs)

        return call

    with contextlib.ExitStack() as undo:
        for owner, name, watch in (
            (threading.Thread, "start", watched_call),
            (ThreadPoolExecutor, "submit", watched_call),
            (torch.Tensor, "numpy", watched_conversion),
            (torch.Tensor, "__dlpack__", watched_conversion),
        ):
            own = name in vars(owner)
            run = getattr(owner, name)
            setattr(owner, name, watch(run))
            undo.callback(setattr, owner, name, run) if own else undo.callback(delattr, owner, name)
        yield
