"""Models are built without a network: whatever would look up a host gets one clear line instead, at once.

It closes the name look-up of this process while it is entered, the hub's own switch included; it does not stop another
process, and does not keep anybody from reading what was downloaded before.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from results.errors import Unavailable

HUB_SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


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
