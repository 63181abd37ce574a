"""Models are built without a network, and what goes wrong is one line: the code of others runs inside `building`.

It closes the name look-up of this process while it is entered, the hub's own switch included; it does not stop another
process, and does not keep anybody from reading what was downloaded before.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from traceback import extract_tb
from typing import Any, NoReturn

from results.errors import Unavailable
from results.library_words import plain_words

HUB_SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


LONGEST = 300
"""Characters of another's words that are kept."""


def fault_text(fault: BaseException) -> str:
    """An exception in one line: its type and what it says; of one that says nothing (a bare assert), the line of code
    that raised it."""
    frames = [frame for frame in extract_tb(fault.__traceback__) if frame.name != "_assert"]  # torch's own for fx
    words = str(fault) or (frames[-1].line if frames else "") or ""
    return plain_words(f"{type(fault).__name__}: {' '.join(words.split())[:LONGEST]}")


@contextlib.contextmanager
def building(what: str) -> Iterator[None]:
    """What the code inside raises becomes a ValueError of one line that begins with `what`.

    Unavailable for a package that is not there, and for what would be downloaded. Memory that runs out stays that.
    """
    try:
        with offline(what):
            yield
    except (Unavailable, MemoryError):
        raise
    except ImportError as fault:
        raise Unavailable(f"{what} raised {fault_text(fault)}") from fault
    except SystemExit as fault:
        raise ValueError(f"{what} called sys.exit({fault.code!r}): expected it to return a model") from fault
    except Exception as fault:
        raise ValueError(f"{what} raised {fault_text(fault)}") from fault


@contextlib.contextmanager
def offline(what: str) -> Iterator[None]:
    """Raises Unavailable where code inside looks for a host, saying which and for `what`.

    Unavailable is no OSError, so that no library takes it for a network that may come back.
    """
    for switch in HUB_SWITCHES:
        os.environ[switch] = "1"
    hub = sys.modules.get("huggingface_hub.constants")
    if hub is not None:
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    original = socket.getaddrinfo

    def refuse(host: Any, *_: Any, **__: Any) -> NoReturn:
        raise Unavailable(f"{what} wants to download from {host}: nothing is downloaded; build it with random weights")

    socket.getaddrinfo = refuse
    try:
        yield
    finally:
        socket.getaddrinfo = original
