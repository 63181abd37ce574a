"""Keeps a ledger of a step's storages: the size and role of each, and the operations between which it lives.

The memory footprint of a step is computed from this ledger. `Storages.number` takes a tensor and returns the serial
number of its storage; `records` returns the ledger as `Storage` rows. A storage is recognised by its Python object,
which torch keeps for as long as the storage lives, never by its address. A weak reference tells when the storage ends.
nbytes is the size of the storage, without an allocator's rounding. Memory that no operation's tensor shows (a kernel's
workspace) is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from results.records.counts import Storage

BEFORE = -1
"""born_index of a storage that existed before the step."""


class _Reference(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to an owner of memory, with its number and key."""

    __slots__ = ("key", "number")
    key: int
    number: int


@dataclass(slots=True)
class _Entry:
    nbytes: int | None
    role: str  # "": none yet
    born: int
    died: int | None = None


class Storages:
    """The ledger of storages by number. `now()` gives the index of the last operation recorded."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.numbers: dict[int, int] = {}  # id of the living Python object → number
        self._now = now
        self._references: list[_Reference] = []
        self._entries: list[_Entry] = []
        self._closed = False

    def number(self, tensor: torch.Tensor, born: int, role: str = "") -> int:
        """Return the number of the tensor's storage; a new one is entered as born at operation `born`.

        A tensor without storage (sparse, opaque) stands for its own memory, of unknown size.
        """
        owner = owner_of(tensor)
        number = self.numbers.get(id(owner))
        return self._enter(owner, born, role) if number is None else number

    def claim(self, tensors: Iterable[Any], role: str) -> None:
        """Give `role` to the storages of these tensors that have none yet; unknown ones existed before."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                entry = self._entries[self.number(tensor, BEFORE, role)]
                entry.role = entry.role or role

    def keep(self, since: int, role: str) -> None:
        """Give `role` to all living storages born from operation `since` on that have none."""
        for number in self.numbers.values():
            entry = self._entries[number]
            if not entry.role and entry.born >= since:
                entry.role = role

    def resized(self, tensor: torch.Tensor) -> None:
        """Read the size of a tensor's storage again: the largest counts."""
        owner = owner_of(tensor)
        if (nbytes := _nbytes(owner)) is not None:
            entry = self._entries[self.numbers[id(owner)]]
            entry.nbytes = max(nbytes, entry.nbytes or 0)

    def close(self) -> None:
        """End the step: storages that die from now on outlived it."""
        self._closed = True
        self._references.clear()

    def records(self) -> tuple[Storage, ...]:
        """Return the ledger, in order of number."""
        return tuple(
            Storage(number, entry.nbytes, entry.role or "temporary", entry.born, entry.died)
            for number, entry in enumerate(self._entries)
        )

    def _enter(self, owner: Any, born: int, role: str) -> int:
        number = len(self._entries)
        reference = _Reference(owner, self._end)
        reference.key = id(owner)
        reference.number = number
        self._references.append(reference)
        self._entries.append(_Entry(_nbytes(owner), role, born))
        self.numbers[reference.key] = number
        return number

    def _end(self, reference: Any) -> None:
        if not self._closed:
            del self.numbers[reference.key]
            self._entries[reference.number].died = self._now()


def _nbytes(owner: Any) -> int | None:
    return owner.nbytes() if isinstance(owner, torch.UntypedStorage) else None


def owner_of(tensor: torch.Tensor) -> Any:
    """Return the Python object that identifies a tensor's memory: its storage, or the tensor itself if it has none."""
    try:
        return tensor.untyped_storage()
    except NotImplementedError:  # sparse and opaque tensors
        return tensor
