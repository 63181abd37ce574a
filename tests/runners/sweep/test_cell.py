"""Definition, injected fault: how a worker probes, builds and measures a cell, on simulated and on real devices."""

import dataclasses
import math
import pickle

import pytest
import torch

from analysis.utilization.step_times import ASIDE
from measure.profile import recording as work_profiles
from measure.timing.stopping import CPU_PROTOCOL, CUDA_PROTOCOL, Protocol
from results.records.cell import Cell
from runners.sweep import cell as sweep_cell
from runners.sweep.findings import blank_run
from runners.workers import any_model as workers_batches
from runners.workers.devices import probe
from tests.measure.timing.fake_clock import FakeClock
from tests.support.fakes.hosts import without_neighbours
from workloads.catalogue.base import Batch
from workloads.step import TrainingStep

SHORT = dataclasses.replace(Protocol.for_device("cpu", quick=True, target_ci_ratio=0.9), cap_s=1.0)


def cell(model: str = "synthetic_convolution", batch_size: int = 2, **more: object) -> Cell:
    return Cell(**{"model": model, "batch_size": batch_size, "device": "cpu", **more})


def measure(of: Cell):
    before = torch.get_float32_matmul_precision()
    try:
        return sweep_cell.measure(of, SHORT)
    finally:
        torch.set_float32_matmul_precision(before)


class TestProbe:
    def test_a_cpu_and_what_it_lacks(self):
        probed = probe("cpu")
        assert probed.device == probed.properties["device"] == "cpu"
        assert "fp32" not in probed.refused
        assert "a CPU has none" in probed.refused["tf32"]
        assert pickle.loads(pickle.dumps(probed)) == probed


class TestStep:
    def parts(self, of: Cell):
        workload = sweep_cell._workload(of)
        model = workload.build(**workload.hyper)
        sweep_cell._lay_out(of, model)
        batches = workers_batches.Batches(of, workload, torch.device("cpu")).some(of.batch_size)
        return model, batches, sweep_cell._step(of, workload, model, batches, "cpu")

    def test_the_layout_is_that_of_images_and_weights_and_of_nothing_else(self):
        model, batches, _ = self.parts(cell(layout="channels_last"))
        assert batches[0].inputs[0].is_contiguous(memory_format=torch.channels_last)
        assert model.weight.is_contiguous(memory_format=torch.channels_last)
        first = self.parts(cell())[1]
        assert torch.equal(batches[0].inputs[0], first[0].inputs[0]), "the same data"
        assert not first[0].inputs[0].is_contiguous(memory_format=torch.channels_last)
        flat = Batch((torch.ones(2, 3),), torch.ones(2))
        assert workers_batches.in_layout("channels_last", flat).inputs[0].stride() == (3, 1)

    @pytest.mark.parametrize(
        ("precision", "autocast", "scaled"),
        [
            ("fp32", None, False),
            ("tf32", None, False),
            ("amp-bf16", torch.bfloat16, False),
            ("amp-fp16", torch.float16, True),
        ],
    )
    def test_the_precision_is_a_policy(self, precision, autocast, scaled):
        _, _, (step, optimizer) = self.parts(cell(precision=precision))
        assert isinstance(step, TrainingStep)
        assert step.autocast == autocast
        assert (step.scaler is not None) == scaled
        assert isinstance(optimizer, torch.optim.SGD)


class TestMeasureOnTheProcessor:
    def test_a_cell_trains_for_real_and_says_what_it_did(self):
        found = measure(cell())
        fields = found.run
        forward = weight_gradient = 2 * 2 * 64**2 * 9 * 64**2  # of two images, 9·c² multiply-adds at each position
        assert fields.executed == {"convolution/float32": forward + weight_gradient}
        assert (fields.parameters, fields.items_per_step) == (9 * 64**2, 2)
        assert (fields.host_bound, fields.peak_memory_bytes) == (None, None)
        assert fields.flags_before == fields.flags_after
        assert math.isfinite(fields.last_loss)
        assert {block.part for block in found.blocks} - {*ASIDE} == {"warmup", "measure", "phase"}
        assert pickle.loads(pickle.dumps(found)) == found

    def test_flags_that_do_not_read_back_stop_it_before(self, monkeypatch):
        monkeypatch.setattr(
            "measure.device.apply_precision.apply", lambda *_: torch.set_float32_matmul_precision("high")
        )
        with pytest.raises(ValueError, match=r"flags read back before the cell disagree with the precision: .*high"):
            measure(cell())

    def test_flags_that_a_forward_pass_flips_are_seen_after(self, monkeypatch):
        """And flips on every call: the legacy TF32 switch, as a model's own constructor or forward may throw it."""
        workload = sweep_cell._workload(cell())

        class Flipping(torch.nn.Conv2d):
            def forward(self, images):
                torch.set_float32_matmul_precision("high")
                return super().forward(images)

        built = dataclasses.replace(workload, build=lambda **_: Flipping(64, 64, 3, padding=1, bias=False))
        monkeypatch.setattr(sweep_cell, "_workload", lambda of: built)
        found = measure(cell())
        assert found.run.status == "invalid"
        assert "expected highest, found high" in found.run.reason
        assert found.blocks, "raw is kept"


class FakeCuda:
    """The questions about memory that a cell asks of torch.cuda. retries: num_alloc_retries at each question."""

    def __init__(self, monkeypatch, retries=(0, 0)) -> None:
        self.said: list[str] = []
        left = iter(retries)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: self.said.append("empty"))
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: self.said.append(f"reset {device}"))
        monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"num_alloc_retries": next(left)})
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: self.ask("allocated", 3 * 2**30))
        monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: self.ask("reserved", 4 * 2**30))

    def ask(self, what: str, answer: int) -> int:
        self.said.append(what)
        return answer


def simulated(clock: FakeClock, *phases: tuple[str, float, float]):
    """A step on a simulated device: (phase, host seconds, device seconds) in turn."""

    def step(mark=lambda phase: None):
        for phase, host_s, device_s in phases:
            mark(phase)
            clock.issue(host_s, device_s)
        mark("end")

    step.last_loss = torch.tensor(1.5)
    return step


BUSY = (
    ("forward", 0.001, 0.020),
    ("loss", 0.0001, 0.001),
    ("backward", 0.001, 0.040),
    ("optimizer", 0.0005, 0.004),
)
"""65 ms of device time a step behind 2.6 ms of host: the device is what limits."""


def alone(monkeypatch) -> None:
    """Nothing of the machine that runs the test: not its waits, not its page faults."""
    without_neighbours(monkeypatch)
    monkeypatch.setattr("runners.sweep.cell.page_fault_warning", lambda *_: "")


class TestMeasureOnASimulatedGpu:
    """`time_cell` over a clock with device time; memory is asked of a made-up torch.cuda."""

    def timed(
        self, monkeypatch, phases=BUSY, retries=(0, 0), protocol=CUDA_PROTOCOL, loss=1.5, device="cuda", others=0.0
    ):
        alone(monkeypatch)
        self.cuda = FakeCuda(monkeypatch, retries)
        monkeypatch.setattr(sweep_cell, "others_ratio", lambda windows: others)
        clock = FakeClock()
        step = simulated(clock, *phases)
        step.last_loss = torch.tensor(loss)
        return sweep_cell.time_cell(cell(device=device), step, clock, protocol, blank_run(cell(device=device)))

    def test_times_are_the_devices(self, monkeypatch):
        found = self.timed(monkeypatch)
        assert (found.run.status, found.run.reason, found.run.warnings) == ("ok", "", ())
        blocks = [block for block in found.blocks if block.part == "measure"]
        assert len(blocks) >= 10
        for block in blocks:
            assert block.device_s / block.steps == pytest.approx(0.065)
        assert sum(block.device_s for block in blocks) >= 5.0

    def test_busy_neighbours_are_a_warning_and_a_number(self, monkeypatch):
        found = self.timed(monkeypatch, others=0.5)
        assert found.run.others_cpu_ratio == 0.5
        (warning,) = found.run.warnings
        assert warning.startswith("busy: ")
        assert self.timed(monkeypatch, others=None).run.others_cpu_ratio is None

    def test_a_loss_that_is_no_number(self, monkeypatch):
        found = self.timed(monkeypatch, loss=math.inf)
        assert found.run.warnings == ("loss: the last loss was inf",)
        assert found.run.last_loss is None


class Chosen(Exception):
    """The driver was told which card is the current one; nothing after that is asked here."""


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
def test_the_cells_card_becomes_the_current_one(monkeypatch, device, number):
    """torch.cuda.set_device refuses "cuda" without a number, which is what a cell of the first card says."""

    def choose(index: int) -> None:
        raise Chosen(index)

    monkeypatch.setattr(torch._C, "_cuda_setDevice", choose, raising=False)  # a CPU build has none
    monkeypatch.setattr("measure.device.apply_precision.supported", lambda *_: None)
    with pytest.raises(Chosen) as said:
        sweep_cell.measure(Cell(model="synthetic_convolution", batch_size=2, device=device), CPU_PROTOCOL)
    assert said.value.args == (number,)


@pytest.mark.parametrize(
    ("cuda", "kernels", "device"), [(True, True, "cuda"), (True, False, None), (False, True, None)]
)
def test_the_profiler_is_asked_for_kernels_where_it_can_record_them(monkeypatch, cuda, kernels, device):
    """Asked for them in vain, it puts two events around each call and times those (KINETO_GPU_FALLBACK)."""
    activities = torch.profiler.ProfilerActivity
    supported = {activities.CPU, activities.CUDA} if kernels else {activities.CPU}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: supported)
    assert work_profiles.kernel_device(cuda) == device
