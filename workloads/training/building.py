"""How a model is built: without a network, what goes wrong in one line, and on meta without values.

`building` runs the code of others. It closes the name look-up of this process while it is entered, the hub's own
switch included; it does not stop another process, and does not keep anybody from reading what was downloaded before.

On meta a model has sizes and no values, so nothing is computed that would only set values. Inside `without_values`
the functions of `torch.nn.init`, and the methods of a tensor that draw values, return a tensor of the meta device as
it is, and what they would refuse they do not refuse. Tensors of other devices are initialised as ever, in other
threads too. Random numbers are drawn as without it: for meta tensors, none. One model is built so at a time in a
process: the next one waits. Code that took a function of torch.nn.init by its name before (`from torch.nn.init import
normal_`) keeps its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from traceback import extract_tb
from typing import Any, NoReturn

import torch

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


INITIALISERS = (
    "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "dirac_", "xavier_uniform_",
    "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_",
)  # fmt: skip
"""Functions of torch.nn.init that set the values of their first argument and return it."""

DRAWS = ("normal_", "uniform_", "erfinv_", "clamp_")
"""Methods of a tensor with which initialisers of other libraries set values (timm's own truncated normal)."""

_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def without_values(reading: Sequence[tuple[type, str]] = ()) -> Iterator[None]:
    """See the module; without effect where the default device is another one than meta.

    reading: class methods (class, name) that read values of tensors which they make: those are made on the CPU.
    """
    if torch.get_default_device().type != "meta":
        yield
        return
    with _one_at_a_time, contextlib.ExitStack() as undo:
        for name in INITIALISERS:
            undo.enter_context(_exchanged(torch.nn.init, name, _skip_meta(getattr(torch.nn.init, name))))
        for name in DRAWS:
            undo.enter_context(_added(torch.Tensor, name, _skip_meta(getattr(torch.Tensor, name))))
        for owner, name in reading:
            undo.enter_context(_exchanged(owner, name, classmethod(_with_values(vars(owner)[name].__func__))))
        yield


@contextlib.contextmanager
def _exchanged(where: Any, name: str, instead: Any) -> Iterator[None]:
    original = vars(where)[name]
    setattr(where, name, instead)
    try:
        yield
    finally:
        setattr(where, name, original)


@contextlib.contextmanager
def _added(where: type, name: str, instead: Any) -> Iterator[None]:
    """An attribute in place of one that the class inherits, or of its own where a context around has added one."""
    own = vars(where).get(name)
    setattr(where, name, instead)
    try:
        yield
    finally:
        if own is None:
            delattr(where, name)
        else:
            setattr(where, name, own)


def _skip_meta(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def initialise(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return tensor if tensor.is_meta else original(tensor, *args, **kwargs)

    return initialise


def _with_values(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(*args: Any, **kwargs: Any) -> Any:
        with torch.device("cpu"):
            return original(*args, **kwargs)

    return read
