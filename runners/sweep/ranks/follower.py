"""Every rank of a sweep but the first: it looks at its device, does its part of what the first orders, and answers.

It reads no options, prints nothing and keeps no file: what is to be said is the first rank's. It ends with 0 when that
rank says so, and with 130 or 143 when torchrun ends it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import Any

from runners.cli.exits import FAILED, INTERRUPTED, TERMINATED
from runners.sweep.ranks.exchange import Exchange, LostExchange, end_with_torchrun
from runners.sweep.ranks.peers import CellOrder, Order, RankPeers
from runners.workers.devices import Place, ProbeResult
from runners.workers.pool import Worker, prepare
from runners.workers.telemetry import TelemetryWatch
from runners.workers.worker import WorkerFault

PROBE_S = 180.0


class Termination(KeyboardInterrupt):
    """SIGTERM came."""


def follow(place: Place) -> int:
    """Do what the first rank orders, until it orders nothing more; the exit code."""
    end_with_torchrun(Termination)
    prepare()
    exchange = Exchange(place)
    try:
        return _follow(exchange)
    except Termination:
        _say_end(exchange)
        return TERMINATED
    except KeyboardInterrupt:
        _say_end(exchange)
        return INTERRUPTED
    except LostExchange as fault:
        print(f"error: rank {place.rank}: torchrun's store is gone: {fault}", file=sys.stderr)
        return FAILED
    finally:
        exchange.close()


def _say_end(exchange: Exchange) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(LostExchange, OSError):
        exchange.put(f"ended/{exchange.place.rank}", True)


def _follow(exchange: Exchange) -> int:
    kind, debug = exchange.take("start")
    device = exchange.place.device(kind)
    worker = Worker("measure", quiet=not debug)
    probed: ProbeResult | WorkerFault = worker.call("runners.workers.devices:probe", device, timeout_s=PROBE_S)
    hello = f"hello/{exchange.place.rank}"
    if isinstance(probed, WorkerFault):
        exchange.put(hello, probed.reason)
        return FAILED
    peers, watch = RankPeers(exchange, probed), TelemetryWatch(device)
    exchange.put(hello, peers.facts)
    watch.start()
    try:
        _do_orders(peers, worker, watch)
    finally:
        watch.close()
        worker.stop()
    return 0


def _do_orders(peers: RankPeers, worker: Worker, watch: TelemetryWatch) -> None:
    """Each order that concerns this rank, until the last."""
    while True:
        peers.orders += 1
        (order,) = peers.exchange.take(f"order/{peers.orders}")
        if order is None:
            return
        if peers.rank < order.ranks:
            peers.answer(peers.orders, _part(peers, order, worker, watch))


def _part(peers: RankPeers, order: Order, worker: Worker, watch: TelemetryWatch) -> Any:
    if isinstance(order, CellOrder):
        worker.stop()  # a group is joined by a process that has joined no other
    return peers.do(peers.orders, order, worker, watch)
