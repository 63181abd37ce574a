"""Functions of a few instructions in memory of this process: for x86-64 Linux, where no compiler is needed for them."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import sys

from results.errors import Unavailable


def address_of(code: bytes) -> int:
    """Of the code, as long as the process lives. Raises Unavailable on another system, and where memory is refused."""
    address, reason = _loaded(code)
    if address is None:
        raise Unavailable(reason)
    return address


@functools.cache
def _loaded(code: bytes) -> tuple[int | None, str]:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None, f"no machine code for {sys.platform} on {platform.machine()}"
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError as fault:
        return None, f"the system refuses memory to run machine code: {fault.strerror}"
    page.write(code)
    first = ctypes.c_char.from_buffer(page)
    _KEPT.append(first)
    return ctypes.addressof(first), ""


_KEPT: list[object] = []
"""What keeps the memory of the code."""
