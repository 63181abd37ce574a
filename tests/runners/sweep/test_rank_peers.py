"""Injected fault, definition: which rank failed, does not answer or is refused, over a store in memory."""

from typing import Any

import pytest

from runners.sweep import rank_peers, request
from runners.sweep.plan import Grid, cells
from runners.sweep.rank_peers import RankAnswer, RankFacts, RankPeers
from runners.sweep.rank_rows import fault_of, is_followed
from runners.workers.devices import ProbeResult, RankProcess
from runners.workers.pool import WorkerFault


class Gone:
    """A store whose host is gone."""

    asked = 0

    def set(self, _key: str, _value: bytes) -> None:
        self.asked += 1
        raise RuntimeError("Connection reset by peer\nframe #33: <unknown function>")


LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242"


class MemoryExchange:
    """A store that all ranks of a test share."""

    def __init__(self, rank: int, values: dict[str, Any]) -> None:
        self.process = RankProcess(rank, 2, rank, 2, ("host", 1))
        self._values = values

    def put(self, key: str, value: Any) -> None:
        self._values[key] = value

    def take(self, key: str, within_s: float = 1e9) -> Any:
        return self._values.get(key)


def peers(rank: int, values: dict[str, Any]) -> RankPeers:
    made = RankPeers(MemoryExchange(rank, values), ProbeResult(device="cpu"))  # type: ignore[arg-type]
    made.others = {1 - rank: RankFacts(1 - rank, "h", "cpu", "")}
    return made


def answer(rank: int, found: Any) -> RankAnswer:
    return RankAnswer(RankFacts(rank, "h", "cpu", ""), found)


def test_a_rank_that_does_not_answer_is_lost_and_named() -> None:
    first = peers(0, {})
    found = first.answers(1, [1], 0.01)
    assert first.lost == {1}
    fault = fault_of({0: answer(0, WorkerFault("crashed", LOST)), **found}, 2)
    assert fault is not None
    assert (fault.status, fault.reason) == ("timeout", "rank 1 of 2 (h cpu): its process gave no answer for 0 s")


def test_the_rank_that_failed_by_itself_is_the_reason() -> None:
    memory, lost = WorkerFault("out_of_memory", "no room"), WorkerFault("crashed", LOST)
    assert is_followed(lost)
    assert not is_followed(memory)
    fault = fault_of({0: answer(0, lost), 1: answer(1, memory), 2: answer(2, lost)}, 3)
    assert fault == WorkerFault("out_of_memory", "rank 1 of 3 (h cpu): no room")
    both = fault_of({0: answer(0, lost), 1: answer(1, lost)}, 2)
    assert both == WorkerFault("crashed", f"rank 0 of 2 (h cpu): {LOST}")
    assert fault_of({0: answer(0, [])}, 1) is None


def test_ranks_of_other_devices_are_refused_with_both_names() -> None:
    first = peers(0, {"hello/1": RankFacts(1, "b", "cuda:1", "NVIDIA T4")})
    with pytest.raises(ValueError, match=r"one kind of device, got '' \(rank 0\) and 'NVIDIA T4' \(rank 1\)"):
        first.gather_facts()
    first.exchange.put("hello/1", "no such device")
    with pytest.raises(ValueError, match="rank 1: no such device"):
        first.gather_facts()


TWO = RankProcess(0, 2, 0, 2, ("host", 1))
REFUSED = {
    "without torchrun": (("ddp=2",), {}, None, "expected to be started as torchrun"),
    "more ranks": (("ddp=2", "ddp=4"), {}, TWO, "at most 2 ranks, as torchrun started, got ddp=4"),
    "compiled": (("ddp=2",), {"compile": True}, TWO, "--compile: not with --parallel"),
    "images": (("ddp=2",), {"data": "cifar10:x"}, TWO, "--data: expected synthetic"),
    "profiles": (("ddp=2",), {"methods": ("one", "exact")}, TWO, "got one"),
    "auto": (("ddp=2",), {"batch_sizes": ()}, TWO, "got auto"),
    "one device": (("ddp=2",), {"device": "cuda:1"}, TWO, "got cuda:1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_go_with_ranks_is_one_line(what: str) -> None:
    plans, values, place, words = REFUSED[what]
    with pytest.raises(ValueError, match=words):
        request.check_ranks(plans, values, place)


def points(**more: Any) -> set[tuple[str, int]]:
    grid = Grid(models=("resnet18",), precisions=("fp32",), device="cpu", parallel=("ddp=1", "fsdp=4"), **more)
    return {(cell.parallel, cell.batch_size) for cell in cells(grid)}


def test_batches_are_of_all_ranks_or_of_each_replica() -> None:
    assert points(batch_sizes=(8,)) == {("ddp=1", 8), ("fsdp=4", 8)}
    assert points(batch_sizes=(8,), scaling="weak") == {("ddp=1", 8), ("fsdp=4", 32)}
    with pytest.raises(ValueError, match="multiples of 4 with fsdp=4, got 6; nearest 8"):
        points(batch_sizes=(6,))


def test_a_store_that_is_gone_is_asked_once() -> None:
    """Each question would take a minute."""
    exchange = rank_peers.Exchange(TWO)
    exchange._store = gone = Gone()
    for _ in range(2):
        with pytest.raises(rank_peers.LostExchange, match=r"Connection reset by peer$"):
            exchange.put("key", 1)
    assert gone.asked == 1
