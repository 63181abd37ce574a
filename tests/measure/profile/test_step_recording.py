"""Definition, law: times of made-up CUDA recordings by hand, with lost and overlapping kernels and an idle device."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from measure.profile.operation_times import OperationTimings, read
from measure.profile.recording import time_operations
from measure.profile.step_profile import between, operation_rows, profile_step
from results.records.counts import Operation
from tests.measure.profile.made_up_events import ENGINE, Recording, a_step_on_cuda
from tests.support.made_up_operations.made_up_operations import operation


def table() -> list[Operation]:
    """What `a_step_on_cuda` does: a convolution, a view, the gradient, an update."""
    convolution = operation(
        "aten.convolution", {"input": (1, 2, 4, 4), "weight": (3, 2, 1, 1)}, [(1, 3, 4, 4)], groups=1, transposed=False
    )
    return [
        dataclasses.replace(row, index=index, phase=phase, kind=kind)
        for index, (row, phase, kind) in enumerate(
            [
                (convolution, "forward", "convolution"),
                (operation("aten.view", {"self": (1, 3, 4, 4)}, [(3, 16)]), "forward", "view"),
                (operation("aten.convolution_backward", {"grad_output": (1, 3, 4, 4)}), "backward", "convolution"),
                (operation("aten._foreach_add_", {"self[0]": (3,)}), "optimizer", "optimizer"),
            ]
        )
    ]


def recorded(recording: Recording, **more: object) -> OperationTimings:
    return read(recording, table(), cuda=True, **more)  # type: ignore[arg-type]


def with_kernels(view: bool = True) -> tuple[Recording, dict[str, int]]:
    """Two kernels forward, one backward that begins while the second runs, a copy; the device ends after the host."""
    recording, launches = a_step_on_cuda()
    if view:
        recording.host("aten::view", 200, 210)
    recording.kernel("winograd", 400, 430, by=launches["forward"])
    recording.kernel("sgemm", 450, 500, by=launches["forward"])
    recording.kernel("dgrad", 480, 900, by=launches["backward"])
    recording.kernel("Memcpy HtoD", 1100, 1103, by=launches["optimizer"])
    return recording, launches


def test_an_operations_time_is_that_of_its_kernels_each_instant_once():
    (step,) = recorded(with_kernels()[0]).steps
    assert step.step_s == 1103e-9  # from the host's first to the device's last
    assert step.own_s == pytest.approx({0: (30 + 30) * 1e-9, 1: 0, 2: 420e-9, 3: 3e-9})  # 480 to 500 is dgrad's
    assert step.kernels == {0: 2, 1: 0, 2: 1, 3: 1}
    assert step.waited_s == pytest.approx({0: (400 + 20) * 1e-9, 1: 0, 2: 0, 3: 200e-9})
    assert step.end_s == 0
    assert step.host_s == pytest.approx({0: 140e-9, 1: 10e-9, 2: 370e-9, 3: 150e-9})
    assert sum(step.own_s.values()) + sum(step.waited_s.values()) + step.end_s == pytest.approx(step.step_s)


def test_time_between_is_by_the_phase_of_what_follows():
    found = recorded(with_kernels()[0])
    assert between(table(), found.steps) == pytest.approx({"forward": 420e-9, "backward": 0, "optimizer": 200e-9})
    rows, _ = operation_rows(table(), found.steps, "tf32", "cuda")
    assert (rows[0].unit, rows[0].kernels, rows[0].low_time_s) == ("tf32", 2, None)
    assert [row.time_s for row in rows] == pytest.approx([60e-9, 0, 420e-9, 3e-9])


def test_lost_kernels_are_told_and_are_time_between():
    recording, _ = with_kernels()
    frame = recording.host("autograd::engine::evaluate_function: FusedBackward", 720, 760, start_thread_id=ENGINE)
    recording.kernel("triton_fused", 950, 980, by=frame)
    recording.kernel("graph", 990, 992, by=99999)
    found = recorded(recording)
    assert found.notes == ("2 kernels in 1 steps belong to no operation: 3.2e-08 s",)
    assert found.steps[0].waited_s[3] == pytest.approx(200e-9)


def test_an_operation_without_a_call_has_no_time():
    """A view that is not there goes unsaid: where a mode watches, autograd takes more of them."""
    recording, _ = with_kernels(view=False)
    found = recorded(recording)
    assert found.unrecorded == {1}
    assert found.notes == ()
    assert set(found.steps[0].own_s) == {0, 2, 3}
    more = [*table(), dataclasses.replace(table()[0], index=4)]
    found = read(recording, more, cuda=True)
    assert found.notes == ("1 of 5 operations have no time, since no recorded step has them: aten.convolution × 1",)


class Two(Recording):
    """Two steps, the second a microsecond later; its backward pass has another call of the same name, or none."""

    def __init__(self, backwards: int) -> None:
        super().__init__()
        for start, count in ((0, 1), (2000, backwards)):
            if start:
                self.range("step", start, start + 1000)
            self.range("forward", start + 10, start + 300)
            self.kernel("winograd", start + 400, start + 410, by=self.host("aten::convolution", start + 20, start + 30))
            self.range("backward", start + 300, start + 800)
            for place in range(count):
                begins = start + 310 + 50 * place
                by = self.host("aten::convolution_backward", begins, begins + 40)
                self.kernel("dgrad", begins + 200, begins + 230, by=by)


def test_what_a_step_lacks_has_no_time_in_any():
    found = read(Two(0), [row for row in table() if row.index in (0, 2)], cuda=True)
    assert [set(step.own_s) for step in found.steps] == [{0}, {0}]
    assert found.notes == (
        "1 of 2 operations have no time, since not every recorded step has them: aten.convolution_backward × 1",
    )
    assert found.unrecorded == frozenset()
    for step in found.steps:
        assert math.fsum((*step.own_s.values(), *step.waited_s.values(), step.end_s)) == pytest.approx(step.step_s)


@pytest.mark.gpu
def test_a_step_on_cuda_has_kernels_and_is_conserved():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.LazyLinear(9))
    batch = torch.randn(32, 3, 64, 64, device="cuda")
    model.cuda()(batch)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    for precision in ("fp32", "amp-bf16"):
        profile = profile_step(model, batch, optimizer=optimizer, precision=precision, steps=5)
        mean_s = sum(profile.step_times_s) / 5
        total_s = sum(row.time_s or 0 for row in profile.operations) + sum(profile.between_s.values())
        assert total_s == pytest.approx(mean_s, rel=1e-9)
        products = [row for row in profile.operations if row.model_flop]
        assert all(row.time_s and row.kernels for row in products)
        assert {row.unit for row in products} == {"fp32" if precision == "fp32" else "bf16"}
        assert sum(row.time_s for row in products) > 0.1 * mean_s
        assert {row.phase for row in products} == {"forward", "backward"}
        assert not any("no time" in note for note in profile.notes)


def test_two_steps_are_two_times():
    found = read(Two(1), [row for row in table() if row.index in (0, 2)], cuda=True)
    assert [step.own_s for step in found.steps] == [pytest.approx({0: 10e-9, 2: 30e-9})] * 2
    assert [step.step_s for step in found.steps] == [1000e-9] * 2
    assert found.notes == ()


def test_ignored_operations_are_no_part_of_the_step():
    (step,) = recorded(with_kernels()[0], ignored=[2]).steps
    assert (step.left_out_s, step.step_s) == pytest.approx((420e-9, (1103 - 420) * 1e-9))


def test_an_operation_that_is_timed_by_itself_keeps_its_keywords() -> None:
    """1 + 2 · 1."""
    results = []
    rows = time_operations(lambda enter: results.append(torch.add(torch.ones(2), torch.ones(2), alpha=2)), "cpu")
    assert results[0].tolist() == [3.0, 3.0]
    assert [row.name for row in rows if row.name == "aten.add"] == ["aten.add"]
