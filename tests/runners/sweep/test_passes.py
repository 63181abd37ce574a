"""Definition, injected fault: the other passes of a cell on a simulated device, by known times; what a failure costs.

The model of these tests takes 10 ms of device time a sample behind 0.1 ms of host time a step, so that every time is
known: one 10 ms, a batch of four 40 ms, the last batch of two 20 ms, an epoch of ten 100 ms.
"""

import dataclasses
import gc
import itertools
import weakref
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analysis.utilization.work_times import passes_of
from measure.timing.stopping import Protocol, step_time_s
from results.records.cell import Cell, Sample
from runners.sweep import passes
from runners.sweep.findings import PassFindings
from runners.sweep.plan import METHODS, tasks
from tests.measure.timing.fake_clock import FakeClock
from tests.support.fakes.fake_session import operation
from workloads.catalogue.base import Batch
from workloads.step import TrainingStep

HOST_S, SAMPLE_S = 0.0001, 0.010
COLLECT = gc.collect
CELL = Cell(model="resnet18", batch_size=4, device="cuda", methods=METHODS, epoch_images=10)


class Model(torch.nn.Module):
    """Learns a number. sizes: samples of each forward pass; fails: what a forward pass of so many samples raises."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.clock, self.sizes, self.fails = clock, [], {}

    def forward(self, images):
        if len(images) in self.fails:
            raise self.fails[len(images)]
        self.sizes.append(len(images))
        self.clock.issue(HOST_S, SAMPLE_S * len(images))
        return images * self.weight


class Supply:
    """Batches of ones. asked, epochs: for which it was asked."""

    def __init__(self) -> None:
        self.asked, self.epochs = [], []

    def endless(self, size):
        self.asked.append(size)
        return (Batch((torch.ones(size),), torch.zeros(size)) for _ in itertools.count())

    def epoch(self, count, size):
        self.epochs.append((count, size))
        whole, rest = divmod(count, size)
        for each in [size] * whole + [rest] * bool(rest):
            yield Batch((torch.ones(each),), torch.zeros(each))


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    """Nothing of CUDA is asked but to free what it has cached."""
    said = []
    monkeypatch.setattr(gc, "collect", lambda *_: 0)  # which takes most of these tests' time
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: said.append("empty"))
    return said


@pytest.fixture(autouse=True)
def profiler(monkeypatch):
    """Runs the step once and records its work; `fails`: work → what it raises."""
    seen = SimpleNamespace(calls=[], fails={}, notes=())

    def profile_step(step, model, clock, *, pass_name, cuda, most_s, export):
        seen.calls.append(SimpleNamespace(step=step, model=model, work=pass_name, cuda=cuda, most_s=most_s))
        if pass_name in seen.fails:
            raise seen.fails[pass_name]
        marks = []
        step(marks.append)
        seen.calls[-1].marks = marks
        block = Sample(
            part="profiled",
            steps=1,
            start_s=clock.wall_s(),
            wall_s=0.5,
            device_s=0.5,
            sync_wait_s=0.1,
            work="" if pass_name == "batch" else pass_name,
        )
        recording = f"of {pass_name}".encode() if export else b""
        return SimpleNamespace(
            operations=(operation(pass_name),), blocks=(block,), notes=seen.notes, recording=recording
        )

    monkeypatch.setattr("runners.sweep.passes.profile_step", profile_step)
    return seen


def subject(cell: Cell = CELL, **rules: object) -> passes.MeasuredCell:
    clock = FakeClock()
    model = Model(clock)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = TrainingStep(model, lambda output, target: ((output - target) ** 2).sum(), optimizer, [], "cpu")
    supply = Supply()
    step.batches = supply.endless(cell.batch_size)
    supply.asked.clear()
    protocol = dataclasses.replace(Protocol.for_device("cuda", quick=True, passes=passes_of(cell)), **rules)
    return passes.MeasuredCell(cell, model, step, supply, clock, protocol, SAMPLE_S * cell.batch_size, clock.wall_s())


def run_all(of: passes.MeasuredCell) -> PassFindings:
    return all_of(of, tasks(of.protocol.passes))


def all_of(of: passes.MeasuredCell, wanted: list[tuple[str, bool]]) -> PassFindings:
    whole = PassFindings()
    for task in wanted:
        whole.add(passes.run(of, *task))
    return whole


def mean_s(found: PassFindings, work: str) -> float:
    blocks = [block for block in found.blocks if (block.work, block.part) == (work, "measure")]
    return sum(step_time_s(block) * block.steps for block in blocks) / sum(block.steps for block in blocks)


class TestWhatIsMeasured:
    def test_each_work_has_its_own_time(self):
        found = run_all(subject())
        assert mean_s(found, "one") == pytest.approx(0.010)
        assert mean_s(found, "last") == pytest.approx(0.020)
        assert {block.work for block in found.blocks if block.part == "measure"} == {"one", "last", "epoch"}
        assert found.warnings == []
        assert found.unprofiled == {}

    def test_one_has_the_gradients_of_one_sample_alone(self):
        """Σ (w·1 − 0)² has the gradient 2·w: not added up over steps."""
        of = subject(dataclasses.replace(CELL, methods=("one",)))
        run_all(of)
        assert of.model.weight.grad.item() == 2.0


class TestEpoch:
    def test_it_is_run_from_end_to_end_in_segments(self):
        of = subject()
        found = all_of(of, tasks(of.protocol.passes)[:3])
        segments = [block for block in found.blocks if block.work == "epoch"]
        assert [block.steps for block in segments] == [1, 2], "two batches of four; the last one of two at the end"
        assert of.batches.epochs == [(10, 4)]
        assert of.model.sizes[-3:] == [4, 4, 2]
        assert sum(block.device_s for block in segments) == pytest.approx(0.1 + HOST_S)
        assert {(block.part, block.phase) for block in segments} == {("measure", "")}

    @given(st.integers(0, 5000), st.booleans())
    def test_segments_are_all_steps_shared_out_evenly(self, whole, partial):
        lengths = passes.segments(whole, partial)
        assert sum(lengths) == whole + partial
        assert 1 <= len(lengths) <= passes.SEGMENTS
        full = [*lengths[:-1], lengths[-1] - partial]
        assert max(full) - min(full) <= 1
        assert len(lengths) == passes.SEGMENTS or max(full) <= 1


class TestProfiles:
    def test_a_compiled_cell_is_recorded_in_eager_mode_and_its_profiled_time_left_out(self, profiler):
        of = subject(dataclasses.replace(CELL, compile=True))
        ran = []

        def compiled(images):
            ran.append(len(images))
            return of.model(images)

        of.step.model = compiled
        found = run_all(of)
        assert set(ran) == {1, 4, 2}, "timed as it is trained"
        assert ran.count(4) == 2, "in the epoch alone: not under the profiler"
        assert {call.model for call in profiler.calls} == {of.model}
        assert found.profiled == ["one", "batch", "last"]
        assert "profiled" not in {block.part for block in found.blocks}
        assert found.warnings == ["profile: recorded in eager mode, which the time is not of"]
        assert of.step.model is compiled


FAULTS = {
    "out of memory": (torch.OutOfMemoryError("CUDA out of memory"), "OutOfMemoryError: CUDA out of memory"),
    "one value": (ValueError("Expected more than 1 value per channel"), "Expected more than 1 value per channel"),
}


@pytest.mark.parametrize("kind", FAULTS)
class TestFailures:
    """A work that fails costs itself, and an epoch whose last batch has no time."""

    @pytest.mark.parametrize("work", ["one", "batch", "last"])
    def test_under_the_profiler(self, work, kind, profiler, cuda):
        profiler.fails[work] = FAULTS[kind][0]
        found = run_all(subject())
        assert found.unprofiled == {work: FAULTS[kind][1]}
        others = [other for other in ("one", "batch", "last") if other != work]
        assert found.profiled == [row.work for row in found.operations] == others
        assert {block.work for block in found.blocks if block.part == "measure"} == {"one", "last", "epoch"}
        assert cuda == ["empty"]

    @pytest.mark.parametrize(("work", "size"), [("one", 1), ("last", 2)])
    def test_while_it_is_timed(self, work, size, kind):
        of = subject()
        of.model.fails[size] = FAULTS[kind][0]
        found = run_all(of)
        assert found.unprofiled[work] == FAULTS[kind][1]
        assert work not in found.profiled
        assert not [block for block in found.blocks if block.work == work]
        if work == "one":
            assert list(found.unprofiled) == ["one"]
            assert any(block.work == "epoch" for block in found.blocks)
        else:
            assert found.unprofiled["epoch"] == f"the time of its last batch of 2 is not known: {FAULTS[kind][1]}"
            assert not any(block.work == "epoch" for block in found.blocks)
        assert mean_s(found, "last" if work == "one" else "one") > 0


def test_what_a_failed_step_held_is_gone_before_memory_is_given_back(monkeypatch):
    """A traceback holds the frames of the step and with them its activations; given back is only what nobody holds."""
    of, held, alive = subject(), [], []

    def fails(images):
        activation = images * 2
        held.append(weakref.ref(activation))
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(gc, "collect", COLLECT)
    monkeypatch.setattr(of.model, "forward", fails)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(held[-1]() is not None))
    assert list(passes.run(of, "one", False).unprofiled) == ["one"]
    assert alive == [False]


def test_an_error_that_breaks_the_context_is_the_cells(profiler):
    profiler.fails["batch"] = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="CUDA error"):
        run_all(subject())
