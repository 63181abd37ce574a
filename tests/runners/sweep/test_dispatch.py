"""Law, injected fault: cells handed to slots, without a cluster, are kept once, whatever becomes of the slots."""

import io
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results.records.cell import Cell, Run
from results.store.manifest import Manifest
from results.store.store import Store, read_run
from runners.cli.output import Progress
from runners.sweep.executors import MOST_LOSSES, Event, Executor
from runners.sweep.findings import Order
from tests.support.cluster.fake_slots import place, result
from tests.support.made_up.made_up_runs import Unsynced


class InMemorySlots:
    """The slots of a test, in its own process. answers: how many orders a slot answers before it is lost."""

    def __init__(self, *events: Event, answers: dict[str, int] | None = None) -> None:
        self.events = deque(events)
        self.answers = dict(answers or {})
        self.orders: list[tuple[str, Cell]] = []
        self.attempts: list[int] = []
        self.dismissed: list[str] = []
        self.closed = False
        self.there = {event.slot for event in events}

    @property
    def expected(self) -> int:
        return len(self.there)

    def next(self, timeout_s: float) -> Event | None:
        event = self.events.popleft() if self.events else None
        if event is not None and isinstance(event.answer, str):
            self.there.discard(event.slot)
        return event

    def measure(self, slot: str, order: Order, progress: Progress) -> None:
        self.orders.append((slot, order.cell))
        self.attempts.append(order.attempt)
        left = self.answers.get(slot, len(self.orders))
        if slot in self.answers:
            self.answers[slot] = left - 1
        self.events.append(Event(slot, result(order) if left > 0 else "its node died"))

    def dismiss(self, slot: str) -> None:
        self.dismissed.append(slot)
        self.there.discard(slot)

    def close(self) -> None:
        self.closed = True


SIX = [Cell(model="resnet18", batch_size=size, device="cpu") for size in (1, 2, 4, 8, 16, 32)]


class Sweep:
    """A run and the slots that its cells are measured by."""

    def __init__(self, path: Path, *events: Any, **more: Any) -> None:
        self.slots = InMemorySlots(*events, **more)
        self.executor = Executor(self.slots)
        self.said = io.StringIO()
        self.store = Store.create(path, Manifest(name="made-up", created_at="2026-01-02T03:04:05Z"), Unsynced())

    def rows(self, wanted: list[Cell]) -> list[Run]:
        self.executor.probe()
        self.executor.begin_session(self.store, "1.0")
        progress = Progress(len(wanted), self.said)
        return list(self.executor.rows(self.store, wanted, None, progress, ("noted",)))


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Any]:
    made: list[Sweep] = []

    def make(*events: Any, **more: Any) -> Sweep:
        made.append(Sweep(tmp_path / "run", *events, **more))
        return made[0]

    yield make
    made[0].store.close()


def two(**more: Any) -> tuple[Event, Event]:
    return Event("a", place("one")), Event("b", place("two", **more))


def test_a_lost_slot_costs_no_cell_and_no_cell_is_measured_twice(sweep: Any) -> None:
    made = sweep(*two(), answers={"b": 1})  # b measures one, and is lost under its second
    made.rows(SIX)
    data = read_run(made.store.path)
    assert sorted(run.batch_size for run in data.all_runs) == [1, 2, 4, 8, 16, 32]
    assert {(run.status, run.attempt) for run in data.all_runs} == {("ok", 1)}
    of_b = [cell for slot, cell in made.slots.orders if slot == "b"]
    assert len(of_b) == 2
    assert [slot for slot, cell in made.slots.orders if cell == of_b[1]] == ["b", "a"]
    assert len(made.slots.orders) == len(SIX) + 1
    assert "b on two: its node died" in made.said.getvalue()


def test_a_cell_that_loses_every_slot_gets_a_row_that_says_so(sweep: Any) -> None:
    names = "abcd"
    ready = [Event(name, place(name)) for name in names]
    made = sweep(*ready, answers=dict.fromkeys(names[:-1], 0))
    made.slots.answers |= {"d": 0}
    (run,) = made.rows(SIX[:1])
    assert run.status == "crashed"
    assert run.reason == f"its slot was lost {MOST_LOSSES + 1} times, the last time: its node died"
    assert len(made.slots.orders) == MOST_LOSSES + 1


def test_another_device_is_not_used(sweep: Any) -> None:
    """Its rows may not be in one run with those of the first."""
    made = sweep(*two(name="Another CPU"))
    made.rows(SIX)
    assert {slot for slot, _ in made.slots.orders} == {"a"}
    assert made.slots.dismissed == ["b"]
    assert "b on two: not used: this machine cannot go on with the run: device_name is 'Another CPU' here" in (
        made.said.getvalue()
    )


def test_without_a_slot_the_rest_is_not_started_and_it_is_said(sweep: Any) -> None:
    made = sweep(*two(), answers={"a": 1, "b": 1})
    runs = made.rows(SIX)
    assert len(runs) == 2
    assert made.executor.unmeasured == 4
    assert "no device is left (b on two: its node died): 4 cells not started; --resume goes on" in made.said.getvalue()


def test_rows_that_cannot_be_kept_cost_their_cell(sweep: Any) -> None:
    made = sweep(two()[0])
    honest = made.slots.measure

    def measure(slot: str, order: Any, progress: Progress) -> None:
        honest(slot, order, progress)
        if order.cell == SIX[1]:
            made.slots.events[-1].answer.learn(trace_id="never-written")

    made.slots.measure = measure
    runs = made.rows(SIX[:3])
    assert [run.status for run in runs] == ["ok", "crashed", "ok"]
    assert runs[1].reason.startswith("its rows cannot be kept: ")
    assert read_run(made.store.path).problems == []
