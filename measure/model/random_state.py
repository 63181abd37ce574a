"""Where the generators of random numbers are: Python's, PyTorch's on the CPU and NumPy's, if it is loaded.

Not seen: generators that a model keeps of its own, and those of other devices.
"""

import contextlib
import ctypes
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def kept_random() -> Iterator[Callable[[], bool]]:
    """Random numbers go on afterwards where they were. Gives a function that says whether any was drawn since."""
    before = _state()

    def state_changed() -> bool:
        return not _same(before, _state())

    try:
        yield state_changed
    finally:
        if state_changed():
            _set(before)


def _state() -> tuple[Any, Any, Any]:
    numpy = sys.modules.get("numpy.random")
    return random.getstate(), torch.get_rng_state(), None if numpy is None else numpy.get_state()


def _same(before: tuple[Any, Any, Any], now: tuple[Any, Any, Any]) -> bool:
    if before[2] is not None and now[2] is not None:
        (kind, keys, *rest), (kind_now, keys_now, *rest_now) = before[2], now[2]
        if (kind, rest) != (kind_now, rest_now) or bytes(keys) != bytes(keys_now):
            return False
    return bool(before[0] == now[0]) and _bytes_of(before[1]) == _bytes_of(now[1])


def _bytes_of(state: torch.Tensor) -> bytes:
    """What a state holds, without a kernel: the first of a process to compare costs it half a megabyte."""
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def _set(before: tuple[Any, Any, Any]) -> None:
    random.setstate(before[0])
    torch.set_rng_state(before[1])
    if before[2] is not None:
        sys.modules["numpy.random"].set_state(before[2])
