"""What the processes of a sweep over several ranks say to each other: keys and values in the store that torchrun keeps.

The store is torch's, so a process of its own talks to it (`Worker`), because the one that keeps the rows has no torch.
Not claimed: secrecy. Whoever reaches torchrun's store is one of the ranks.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from typing import Any

from results.kernel import die_with_parent
from runners.workers.devices import Place
from runners.workers.pool import Worker
from runners.workers.worker import WorkerFault

CHUNK_BYTES = 4 << 20
"""Of a value: torch's store takes 8 MiB at once."""

POLL_S = 5.0
ANSWER_S = 60.0
FOREVER_S = 1e9

KILLED = "torchrun's process was killed"

END_S = 0.2
"""For torchrun's threads to end: the kernel sends a signal when the first of them does, and a rank's parent is another
process only after the last."""


def end_with_torchrun(fault: type[BaseException]) -> None:
    """Has SIGTERM raise `fault` in this process, once, and the kernel send it where torchrun's process is killed: then
    one comes for each of its threads that ends."""

    def terminate(_signal: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(END_S)
        raise fault

    signal.signal(signal.SIGTERM, terminate)
    die_with_parent(signal.SIGTERM)


_STORES: dict[tuple[str, int], Any] = {}
"""Of the process that talks to the store."""


class LostExchange(Exception):
    """torchrun's store cannot be reached any more."""


class Exchange:
    """Values by key, for all ranks. One thread at a time. Each method raises LostExchange where there is no store."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._worker = Worker("exchange")
        self._torchrun = os.getppid()
        self._lost = ""

    @property
    def is_orphaned(self) -> bool:
        """Whether torchrun's process, which started this one, is gone."""
        return os.getppid() != self._torchrun

    def put(self, key: str, value: Any) -> None:
        """Keep a value under a key that has none."""
        self._call("store_value", key, pickle.dumps(value))

    def take(self, key: str, within_s: float = FOREVER_S) -> Any:
        """The value of a key, when there is one; None where none came in time."""
        while within_s > 0:
            found = self._call("stored_value", key, min(POLL_S, within_s))
            if found is not None:
                return pickle.loads(found)
            within_s -= POLL_S
        return None

    def is_there(self, key: str) -> bool:
        """Whether a key has a value now."""
        return bool(self._call("is_stored", key))

    def close(self) -> None:
        """Ends the process that talks to the store."""
        self._worker.stop()

    def _call(self, task: str, *arguments: Any) -> Any:
        self._lost = self._lost or (KILLED if self.is_orphaned else "")
        if self._lost:  # asking again would take as long again
            raise LostExchange(self._lost)
        answer = self._worker.call(f"{__name__}:{task}", self.place.address, *arguments, timeout_s=POLL_S + ANSWER_S)
        if isinstance(answer, WorkerFault):
            self._lost = answer.reason.partition("; it printed")[0]
            raise LostExchange(self._lost)
        return answer


def store_value(address: tuple[str, int], key: str, value: bytes) -> None:
    """A worker's task."""
    store = _store(address)
    parts = [value[start : start + CHUNK_BYTES] for start in range(0, len(value), CHUNK_BYTES)]
    for index, part in enumerate(parts):
        store.set(f"{key}#{index}", part)
    store.set(key, str(len(parts)))


def stored_value(address: tuple[str, int], key: str, within_s: float) -> bytes | None:
    """A worker's task."""
    from datetime import timedelta

    from torch.distributed import DistNetworkError, DistStoreError

    store = _store(address)
    try:
        store.wait([key], timedelta(seconds=within_s))
    except DistNetworkError:
        raise
    except DistStoreError:
        return None
    return b"".join(store.get(f"{key}#{index}") for index in range(int(store.get(key))))


def is_stored(address: tuple[str, int], key: str) -> bool:
    """A worker's task."""
    return bool(_store(address).check([key]))


def _store(address: tuple[str, int]) -> Any:
    """torchrun's store, our keys in it apart from others'."""
    from datetime import timedelta

    from torch._C._distributed_c10d import PrefixStore, TCPStore

    if address not in _STORES:
        store = TCPStore(*address, is_master=False, timeout=timedelta(seconds=ANSWER_S))
        _STORES[address] = PrefixStore("flopledger", store)
    return _STORES[address]
