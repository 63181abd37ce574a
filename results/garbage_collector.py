"""Work without Python's cyclic collector: what it frees, and the time it takes, is no part of a step."""

import contextlib
import gc
from collections.abc import Iterator

MANY = 100_000
"""Objects that were made and not freed. Below it the next collection is short, and counting what is frozen may take
longer, since Python counts them one by one."""

BY_PYTHON = 1000
"""Fewer frozen objects are those of Python 3.12 itself, a few hundred."""


@contextlib.contextmanager
def collector_off(keeps: bool = False) -> Iterator[None]:
    """Python's cyclic collector does not run inside.

    keeps: what is made inside is kept, such as a million rows: it counts as old afterwards, so that the next collection
    of what is young does not pass over all of it.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if keeps and gc.get_count()[0] > MANY and gc.get_freeze_count() < BY_PYTHON:
                gc.freeze()
                gc.unfreeze()  # to the oldest
            gc.enable()
