"""Law, definition: real steps by operation type lose nothing; launches, scopes and classes by hand."""

import pytest
import torch

from measure.profile.operation_times import type_rows
from measure.profile.recording import record
from tests.measure.profile.made_up_events import a_step_on_cuda
from tests.support.nets.small_steps import Calls


@pytest.fixture(scope="module")
def recorded():
    torch.manual_seed(0)
    parts = {"conv": torch.nn.Conv2d(3, 4, 3), "out": torch.nn.Linear(4 * 36, 2)}
    net = Calls(lambda m, images: m.out(torch.relu(m.conv(images)).flatten(1)), **parts)
    optimizer = torch.optim.Adam(net.parameters())
    images = torch.randn(2, 3, 8, 8)

    def step(mark):
        optimizer.zero_grad(set_to_none=False)
        mark("forward")
        output = net(images)
        mark("loss")
        loss = output.square().mean()
        mark("backward")
        loss.backward()
        mark("optimizer")
        optimizer.step()
        mark("end")

    calls = []
    found = record(step, "cpu", warm_up=1, plain=2, profiled=3, before=lambda: calls.append(1))
    return found, len(calls)


def test_operations_lie_within_the_step_and_are_the_same_in_each(recorded):
    rows = type_rows(recorded[0].profile, 7, cuda=False)
    assert [step.step for step in rows.steps] == [0, 1, 2]
    for step in rows.steps:
        times = [row for row in rows.times if row.step == step.step]
        assert 0 < step.operations_s < step.time_s
        assert sum(row.time_s for row in times) == pytest.approx(step.operations_s)
        assert (sum(row.calls for row in times), sum(row.launches for row in times)) == (step.calls, step.launches)
    one, two = ([(row.name, row.calls) for row in rows.times if row.step == place] for place in (1, 2))
    assert one == two
    assert len(rows.calls) == rows.steps[1].calls


@pytest.fixture(scope="module")
def last(recorded):
    return [row for row in type_rows(recorded[0].profile, 7, cuda=False).times if row.step == 2]


def test_calls_of_known_names_are_counted_in_their_phase(last):
    calls = {(row.name, row.phase): row.calls for row in last if not row.scope}
    assert calls["aten::conv2d", "forward"] == 1
    assert calls["aten::convolution_backward", "backward"] == 1
    assert calls["aten::addmm", "forward"] == 1


def test_what_an_optimizer_does_has_its_scope_and_class(last):
    assert {row.scope for row in last if row.phase == "optimizer"} == {"step", "zero_grad"}
    assert {row.optimizer for row in last if row.scope} == {"Adam"}
    assert not any(row.scope for row in last if row.phase != "optimizer")


def test_a_wrapper_and_what_it_calls_are_one_launch_and_a_view_none(last):
    forward = {row.name: row.launches for row in last if row.phase == "forward" and row.launches}
    convolutions = sum(count for name, count in forward.items() if "conv" in name)
    assert convolutions == 1  # conv2d, convolution, _convolution and the backend's
    assert sum(forward.get(name, 0) for name in ("aten::relu", "aten::clamp_min")) == 1  # the one calls the other
    assert not any(name in forward for name in ("aten::view", "aten::t", "aten::as_strided", "aten::transpose"))


def test_on_a_device_times_and_launches_are_those_of_kernels():
    """Two kernels of the innermost forward call, 30 and 50 ns, of which one of the backward call takes the last 20 by
    beginning; and one that no call launched. Each instant counts once, for what began last."""
    recording, launches = a_step_on_cuda()
    recording.kernel("winograd", 400, 430, by=launches["forward"])
    recording.kernel("sgemm", 450, 500, by=launches["forward"])
    recording.kernel("dgrad", 480, 900, by=launches["backward"])
    recording.kernel("graph", 990, 992, by=99999)
    rows = type_rows(recording, 0, cuda=True)
    (step,) = rows.steps
    by_name = {row.name: (row.launches, round(row.time_s * 1e9)) for row in rows.times}
    assert by_name == {
        "aten::cudnn_convolution": (2, 60), "aten::convolution_backward": (1, 420), "unlinked": (1, 2)
    }  # fmt: skip
    assert (step.launches, round(step.operations_s * 1e9), len(rows.calls)) == (4, 482, 4)
    assert step.time_s >= step.operations_s
