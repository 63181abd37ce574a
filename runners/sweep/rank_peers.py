"""Connects the ranks of a sweep in their parent processes: the first rank sends orders, each does its part and answers.

`RankPeers` sends a `RankOrder` and returns each rank's `RankAnswer`, through torchrun's key-value store (`Exchange`). A
worker that ends or hangs is its own rank's fault. A hanging worker is killed at the cell's limit, after the other
ranks' collectives have failed. A parent that does not answer is named, too. Every rank but the first runs `follow`: it
probes its device, executes orders, and answers. `follow` reads no options, writes no file, and prints only fatal
errors. Its exit code is 0 when the first rank ends it, 130 or 143 when torchrun does, and 1 without device or store.
Not claimed: secrecy. A process that reaches torchrun's store is trusted as a rank.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from results.process import die_with_parent
from results.records.cell import Telemetry
from runners.cli.exits import FAILED, INTERRUPTED, TERMINATED, Terminated
from runners.workers.devices import ProbeResult, RankProcess, TelemetryWatch
from runners.workers.pool import Worker, WorkerFault, prepare

CHUNK_BYTES = 4 << 20
"""Size of the parts of a value: torch's store takes at most 8 MiB in one."""

POLL_S = 0.2
ANSWER_S = 60.0

MEETING_S = 300.0
"""Limit for all ranks to probe their device."""

PROBE_S = 180.0


def end_with_torchrun() -> None:
    """Make the first SIGTERM raise Terminated in this process, and ignore later ones. The kernel sends SIGTERM if
    torchrun's process is killed, once for each of that process's threads."""

    def terminate(_signal: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    die_with_parent(signal.SIGTERM)


class LostExchange(Exception):
    """torchrun's store cannot be reached any more."""


class Exchange:
    """Holds values by key, for all ranks. Each method raises LostExchange if the store is gone."""

    def __init__(self, process: RankProcess) -> None:
        self.process = process
        self.lost = ""
        self._store: Any = None

    def put(self, key: str, value: Any) -> None:
        """Store a value under a new key."""
        content = pickle.dumps(value)
        starts = range(0, len(content), CHUNK_BYTES)
        with self._reached() as store:
            for index, start in enumerate(starts):
                store.set(f"{key}#{index}", content[start : start + CHUNK_BYTES])
            store.set(key, str(len(starts)))

    def take(self, key: str, within_s: float = math.inf) -> Any:
        """Return the value of a key, once there is one; None if none came in time."""
        until_s = time.monotonic() + within_s
        with self._reached() as store:
            while not store.check([key]):
                if time.monotonic() > until_s:
                    return None
                time.sleep(POLL_S)
            return pickle.loads(b"".join(store.get(f"{key}#{index}") for index in range(int(store.get(key)))))

    @contextlib.contextmanager
    def _reached(self) -> Iterator[Any]:
        """Connect to torchrun's store, with our keys separate from others'."""
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        if self.lost:  # asking again would take as long again
            raise LostExchange(self.lost)
        try:
            if self._store is None:
                store = TCPStore(*self.process.address, is_master=False, timeout=timedelta(seconds=ANSWER_S))
                self._store = PrefixStore("flopledger", store)
            yield self._store
        except RuntimeError as fault:  # what torch raises of the network
            self.lost = f"torchrun is gone, and the other ranks with it: {str(fault).splitlines()[0]}"
            raise LostExchange(self.lost) from fault


@dataclass(frozen=True)
class RankFacts:
    """The device of a rank."""

    rank: int
    host: str
    device: str
    device_name: str


@dataclass(frozen=True)
class RankOrder:
    """A task for the first `ranks` ranks at the same time. The task gets this order, its rank's process and device, and
    the order's number."""

    task: str
    arguments: tuple[Any, ...]
    ranks: int
    timeout_s: float


@dataclass(frozen=True)
class RankAnswer:
    """The result of a rank's part. result: its task's, or a WorkerFault. readings: of its device meanwhile, by its
    host's clock; energy_j: over the timed window."""

    facts: RankFacts
    result: Any
    readings: tuple[Telemetry, ...] = ()
    energy_j: float | None = None


@dataclass
class RankPeers:
    """One rank's parent process, connected to the others'. others: their facts, for the first rank."""

    exchange: Exchange
    probed: ProbeResult
    others: dict[int, RankFacts] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    orders: int = 0

    @property
    def facts(self) -> RankFacts:
        return RankFacts(self.exchange.process.rank, socket.gethostname(), self.probed.device, self.probed.name)

    def gather_facts(self) -> None:
        """Collect the other ranks' facts. Raises ValueError if a rank does not come, or has another device."""
        for rank in range(1, self.exchange.process.world):
            facts = self.exchange.take(f"hello/{rank}", MEETING_S) or f"it named no device within {MEETING_S:.0f} s"
            if isinstance(facts, str):
                raise ValueError(f"rank {rank}: {facts}")
            if facts.device_name != self.facts.device_name:
                names = f"{self.facts.device_name!r} (rank 0) and {facts.device_name!r} (rank {rank})"
                raise ValueError(f"--parallel: expected ranks with one kind of device, got {names}")
            self.others[rank] = facts

    def order(self, order: RankOrder | None) -> int:
        """Send all ranks the next order (None: the end); return its number."""
        self.orders += 1
        self.exchange.put(f"order/{self.orders}", (order,))
        return self.orders

    def do(self, number: int, order: RankOrder, worker: Worker, watch: TelemetryWatch) -> RankAnswer:
        """Execute this rank's part of an order, in a process that has joined no other group."""
        worker.stop()
        arguments = (order, self.exchange.process, self.probed.device, number)
        result = worker.call(order.task, *arguments, timeout_s=order.timeout_s)
        run = result.measured.run if hasattr(result, "measured") else None
        if run is None or run.window_start_s is None or run.window_end_s is None:  # nothing was timed
            return RankAnswer(self.facts, result)
        window = run.window_start_s, run.window_end_s
        return RankAnswer(self.facts, result, tuple(watch.window(*window)), watch.energy(*window).energy_j)

    def answers(self, number: int, ranks: Iterable[int], within_s: float) -> dict[int, RankAnswer]:
        """Return the answers of other ranks; a rank that does not answer in time is lost, and its answer is
        that fault."""
        answers = {rank: self.exchange.take(f"answer/{number}/{rank}", within_s) for rank in ranks}
        for rank in (rank for rank, answer in answers.items() if answer is None):
            self.lost.add(rank)
            fault = WorkerFault("timeout", f"its process gave no answer for {within_s:.0f} s")
            answers[rank] = RankAnswer(self.others[rank], fault)
        return answers


def follow(process: RankProcess) -> int:
    """Execute the first rank's orders until the last one; return the exit code."""
    end_with_torchrun()
    prepare()
    exchange, worker, watch = Exchange(process), Worker("measure"), None
    try:
        device = process.device(exchange.take("start"))
        probed: ProbeResult | WorkerFault = worker.call("runners.workers.devices:probe", device, timeout_s=PROBE_S)
        if isinstance(probed, WorkerFault):
            exchange.put(f"hello/{process.rank}", probed.reason)
            return FAILED
        peers, watch = RankPeers(exchange, probed), TelemetryWatch(device)
        exchange.put(f"hello/{process.rank}", peers.facts)
        watch.start()
        while True:
            peers.orders += 1
            (order,) = exchange.take(f"order/{peers.orders}")
            if order is None:
                return 0
            if process.rank < order.ranks:
                answer = peers.do(peers.orders, order, worker, watch)
                exchange.put(f"answer/{peers.orders}/{process.rank}", answer)
    except KeyboardInterrupt as end:
        return TERMINATED if isinstance(end, Terminated) else INTERRUPTED
    except LostExchange as fault:
        print(f"error: rank {process.rank}: {fault}", file=sys.stderr)
        return FAILED
    finally:
        worker.stop()
        if watch is not None:
            watch.close()
