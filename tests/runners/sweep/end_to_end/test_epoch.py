"""Definition, law: cells with all their passes, measured on a CPU, with random data and with CIFAR-10 from files."""

import dataclasses
import functools

import pytest
import torch

from analysis.utilization.step_times import ASIDE
from analysis.utilization.work_times import passes_of
from measure.timing.stopping import Protocol
from results.records.cell import MEASURED, Cell
from runners.sweep import cell as sweep_cell
from runners.sweep import passes
from runners.sweep.findings import CellMeasurement, PassFindings
from runners.sweep.plan import METHODS, tasks
from runners.workers import any_model as workers_batches
from tests.support.made_up.made_up_cifar import IMAGES, made
from workloads import torchvision_models

ALL = 5 * IMAGES
"""Images of the made-up data set: twenty, each of one grey of its own."""

SIDE = 8


class Tiny(torch.nn.Module):
    """A linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3 * SIDE**2, 10)

    def forward(self, images):
        return self.fc(images.flatten(1))


def cell(**more: object) -> Cell:
    words = {"model": "resnet18", "batch_size": 6, "device": "cpu", "methods": METHODS, "quick": True}
    return Cell(**{**words, "image_size": 32, "num_classes": 10, "epoch_images": ALL, **more})


def short(of: Cell) -> Protocol:
    rules = Protocol.for_device("cpu", quick=True, target_ci_ratio=0.9, passes=passes_of(of))
    return dataclasses.replace(rules, cap_s=0.3, min_time_s=0.05, warm_cap_s=0.1, warm_min_s=0.01, block_s=0.01)


def measure(of: Cell) -> CellMeasurement:
    """A cell and its works, as a session asks a worker for them."""
    measured = sweep_cell.measure(of, short(of))
    if measured.run.status not in MEASURED:
        return measured
    whole = PassFindings()
    for task in tasks(passes_of(of)):
        whole.add(passes.measure_pass(of.cell_id, *task))
    return measured.with_passes(whole)


@pytest.fixture
def models(monkeypatch):
    """Every model built, each a `Tiny` one of 8 × 8 images."""
    built = []
    honest = sweep_cell._workload

    def workload(of):
        return dataclasses.replace(
            honest(of),
            build=lambda **_: built.append(Tiny()) or built[-1],
            hyper={"image_size": SIDE, "num_classes": 10},
        )

    monkeypatch.setattr(sweep_cell, "_workload", workload)
    return built


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The option of a small data set of the right format, whose checksums torchvision is told to expect."""
    images = functools.partial(torchvision_models.cifar_images, kind=made(tmp_path))
    monkeypatch.setattr(torchvision_models, "cifar_images", images)
    return f"cifar10:{tmp_path}"


def batches(of: Cell) -> workers_batches.Batches:
    return workers_batches.Batches(of, sweep_cell._workload(of), torch.device("cpu"))


def greys(batch) -> list[float]:
    return batch.inputs[0][:, 0, 0, 0].tolist()


class TestBatches:
    @pytest.mark.parametrize(("count", "sizes"), [(20, [6, 6, 6, 2]), (18, [6, 6, 6]), (7, [6, 1])])
    def test_an_epoch_is_whole_batches_and_what_is_left(self, models, data, count, sizes):
        """Of the images in the files, each grey of its own; in a batch each comes once."""
        of_files = [
            ((50 * (i // IMAGES) + i % IMAGES) / 255 - torchvision_models.CIFAR_MEAN[0]) / 0.2470 for i in range(ALL)
        ]
        epoch = list(batches(cell(data=data)).epoch(count, 6))
        assert [len(batch.target) for batch in epoch] == sizes
        for seen in map(greys, epoch):
            assert all(min(abs(grey - other) for other in of_files) < 1e-5 for grey in seen)
            assert len(set(seen)) == len(seen)


@pytest.fixture(scope="module")
def found():
    of = cell(batch_size=4, image_size=64, epoch_images=10)
    return measure(of)


class TestACellWithAllItsWorks:
    def test_each_is_timed_or_profiled_or_both(self, found):
        parts = {(block.work, block.part) for block in found.blocks if block.part not in ASIDE}
        assert parts == {
            *(("", part) for part in ("warmup", "measure", "phase", "profiled")),
            *((work, part) for work in ("one", "last") for part in ("warmup", "measure", "profiled")),
            ("epoch", "measure"),
        }
        assert found.run.profiled == ("one", "batch", "last")
        assert found.run.unprofiled == {}

    def test_the_operations_are_of_its_sizes(self, found):
        """The first convolution of each work has as many images as the work's step."""
        sizes = {
            row.work: row.input_shapes[0][0]
            for row in reversed(found.operations)
            if row.name == "aten::conv2d" and row.phase == "forward"
        }
        assert sizes == {"one": 1, "batch": 4, "last": 2}

    def test_one_has_no_optimizer_in_its_profile_and_a_batch_has(self, found):
        updates = {row.work for row in found.operations if "_foreach_" in row.name or row.name == "aten::add_"}
        assert {"batch", "last"} <= updates
        momentum = [row for row in found.operations if row.work == "one" and "_foreach_mul" in row.name]
        assert momentum == []


def test_the_cells_own_numbers_were_read_before_the_passes(models, data, monkeypatch):
    def meddle(subject, work, profiled):
        torch.set_float32_matmul_precision("high")
        subject.step.last_loss = torch.tensor(float("nan"))
        return PassFindings(unprofiled={work: "because"}, warnings=["profile: x"])

    monkeypatch.setattr(passes, "run", meddle)
    of = cell(data=data)
    try:
        found = measure(of)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert found.run.flags_after == found.run.flags_before
    assert found.run.last_loss > 0
    assert found.run.unprofiled == dict.fromkeys(passes_of(of), "because")


def test_the_graphs_of_a_compiled_cells_works_are_of_plain_sizes(monkeypatch):
    """One of a batch, one of a sample, one of the last batch; the epoch runs two of them again."""
    given = []

    def backend(graph, inputs):
        shapes = [value.shape for value in inputs if isinstance(value, torch.Tensor)]
        given.append(all(isinstance(size, int) for shape in shapes for size in shape))
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    sizes = {"batch_size": 4, "image_size": 16, "num_classes": None, "epoch_images": 10}
    of = cell(model="synthetic_convolution", **sizes, compile=True)
    try:
        found = measure(of)
    finally:
        torch.compiler.reset()
    assert given == [True] * 3
    assert found.run.profiled == ("one", "batch", "last")
    assert "profiled" not in {block.part for block in found.blocks}
    assert "profile: recorded in eager mode, which the time is not of" in found.run.warnings
    convolved = {(row.work, row.input_shapes[0][0]) for row in found.operations if row.name == "aten::conv2d"}
    assert convolved == {("one", 1), ("batch", 4), ("last", 2)}
