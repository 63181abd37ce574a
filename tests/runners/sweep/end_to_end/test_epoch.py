"""Cells with all their works, for real on the processor: random data, CIFAR-10 beforehand and through a DataLoader."""

import dataclasses
import functools
import time

import pytest
import torch
from torchvision.transforms import Compose

from analysis.utilization.step_times import ASIDE
from analysis.utilization.work_times import works_of
from measure.timing.protocols import Protocol
from results.records.cell import Cell
from results.records.rows import MEASURED
from runners.sweep import cell as sweep_cell
from runners.sweep import passes
from runners.sweep.findings import CellMeasurement, WorkFindings, merge_findings
from runners.sweep.plan import METHODS, tasks
from runners.workers import any_model as workers_batches
from tests.support.made_up.made_up_cifar import IMAGES, made
from workloads.vision import cifar

ALL = 5 * IMAGES
IMAGE_S = 0.02
"""Images of the made-up data set: twenty, each of one grey of its own."""

SIDE = 8


class Tiny(torch.nn.Module):
    """A linear classifier that remembers the samples it saw, each by its first pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3 * SIDE**2, 10)
        self.seen: list[list[float]] = []

    def forward(self, images):
        self.seen.append(images[:, 0, 0, 0].tolist())
        return self.fc(images.flatten(1))


def cell(**more: object) -> Cell:
    words = {"model": "resnet18", "batch_size": 6, "device": "cpu", "methods": METHODS, "quick": True}
    return Cell(**{**words, "image_size": 32, "num_classes": 10, "epoch_images": ALL, **more})


def short(of: Cell) -> Protocol:
    rules = Protocol.for_device("cpu", quick=True, target_ci_ratio=0.9, works=works_of(of))
    return dataclasses.replace(rules, cap_s=0.3, min_time_s=0.05, warm_cap_s=0.1, warm_min_s=0.01, block_s=0.01)


def measure(of: Cell) -> CellMeasurement:
    """A cell and its works, as a session asks a worker for them."""
    measured = sweep_cell.measure(of, short(of))
    if measured.run.status not in MEASURED:
        return measured
    parts = [sweep_cell.measure_work(of.cell_id, *task) for task in tasks(works_of(of))]
    return measured.with_works(merge_findings(parts))


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
    monkeypatch.setattr(cifar, "dataset", functools.partial(cifar.dataset, kind=made(tmp_path)))
    return f"cifar10:{tmp_path}"


@pytest.fixture
def slow_data(data, monkeypatch):
    """The same, but each image takes `IMAGE_S` to make."""
    quick = cifar.dataset

    def slow(directory, image_size):
        images = quick(directory, image_size)
        images.transform = Compose([lambda image: time.sleep(IMAGE_S) or image, images.transform])
        return images

    monkeypatch.setattr(cifar, "dataset", slow)
    return data


def batches(of: Cell) -> workers_batches.Batches:
    return workers_batches.Batches(of, sweep_cell._workload(of), torch.device("cpu"))


def greys(batch) -> list[float]:
    return batch.inputs[0][:, 0, 0, 0].tolist()


class TestBatches:
    @pytest.mark.parametrize("pipeline", [False, True])
    @pytest.mark.parametrize(("count", "sizes"), [(20, [6, 6, 6, 2]), (18, [6, 6, 6]), (7, [6, 1])])
    def test_an_epoch_is_whole_batches_and_what_is_left(self, models, data, pipeline, count, sizes):
        of = cell(data=data, input_pipeline=pipeline)
        assert [len(batch.target) for batch in batches(of).epoch(count, 6)] == sizes

    @pytest.mark.parametrize("count", [20, 7])
    def test_through_the_pipeline_each_image_of_an_epoch_comes_once(self, models, data, count):
        """The first seven images are four of the first file and three of the second, whatever their order."""
        of = cell(data=data, input_pipeline=True)
        seen = [grey for batch in batches(of).epoch(count, 6) for grey in greys(batch)]
        expected = [((50 * (i // IMAGES) + i % IMAGES) / 255 - cifar.MEAN[0]) / 0.2470 for i in range(count)]
        assert sorted(seen) == pytest.approx(sorted(expected), abs=1e-5)
        assert seen != sorted(seen), "shuffled"


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


def test_the_model_sees_each_image_of_a_real_epoch_once(models, data):
    of = cell(data=data, input_pipeline=True)
    found = measure(of)
    assert found.run.unprofiled == {}
    sizes = [len(seen) for seen in models[-1].seen]
    (first,) = [
        i for i in range(len(sizes)) if sizes[i - 1 : i + 5] == [2, 6, 6, 6, 2, 1]
    ]  # after `last`, before profiles
    assert len({grey for seen in models[-1].seen[first : first + 4] for grey in seen}) == ALL
    assert set(sizes) == {6, 1, 2}
    assert found.run.warnings[0] == "input_pipeline: the phase optimizer holds the wait for the batch, too"


@pytest.mark.parametrize("pipeline", [True, False])
def test_the_pipelines_time_is_in_the_step_only_where_it_is_asked_for(models, slow_data, pipeline):
    """20 ms an image: 120 ms a batch of six, 20 ms one sample, 40 ms the last two, 400 ms the epoch."""
    of = cell(data=slow_data, input_pipeline=pipeline)
    for _ in range(1 if pipeline else 3):  # other work shares the cores
        slow = _slow(measure(of))
        if not any(slow.values()):
            break
    assert slow == dict.fromkeys(("", "one", "last", "epoch"), pipeline)


def _slow(found) -> dict[str, bool]:
    """Work → whether its fastest step waits for all of its images."""
    waits = {}
    for work, images in {"": 6, "one": 1, "last": 2}.items():
        blocks = [block for block in found.blocks if (block.work, block.part) == (work, "measure")]
        waits[work] = min(block.wall_s / block.steps for block in blocks) >= images * IMAGE_S
    epoch_s = sum(block.wall_s for block in found.blocks if block.work == "epoch")
    return {**waits, "epoch": epoch_s >= ALL * IMAGE_S}


def test_the_cells_own_numbers_were_read_before_the_passes(models, data, monkeypatch):
    def meddle(subject, work, profiled):
        torch.set_float32_matmul_precision("high")
        subject.step.last_loss = torch.tensor(float("nan"))
        return WorkFindings(unprofiled={work: "because"}, warnings=["profile: x"])

    monkeypatch.setattr(passes, "run", meddle)
    of = cell(data=data)
    try:
        found = measure(of)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert found.run.flags_after == found.run.flags_before
    assert found.run.last_loss > 0
    assert found.run.unprofiled == dict.fromkeys(works_of(of), "because")


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
