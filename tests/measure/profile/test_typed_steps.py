"""Recorded real steps by operation type: nothing is lost, an optimizer's work is known, views launch nothing."""

import pytest
import torch

from measure.profile.operation_times import Typed, typed_steps
from measure.profile.step_kinds import record
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
    steps = typed_steps(recorded[0].profile, cuda=False)
    assert len(steps) == 3
    for step in steps:
        assert 0 < step.operations_s < step.step_s
        assert set(step.calls) == set(step.own_s)
    assert steps[1].calls == steps[2].calls


def test_calls_of_known_names_are_counted_in_their_phase(recorded):
    step = typed_steps(recorded[0].profile, cuda=False)[-1]
    assert step.calls[Typed("aten::conv2d", "forward")] == 1
    assert step.calls[Typed("aten::convolution_backward", "backward")] == 1
    assert step.calls[Typed("aten::addmm", "forward")] == 1


def test_what_an_optimizer_does_has_its_scope_and_class(recorded):
    step = typed_steps(recorded[0].profile, cuda=False)[-1]
    scopes = {typed.scope for typed in step.calls if typed.phase == "optimizer"}
    assert scopes == {"step", "zero_grad"}
    assert {typed.optimizer for typed in step.calls if typed.scope} == {"Adam"}
    assert not any(typed.scope for typed in step.calls if typed.phase != "optimizer")


def test_a_wrapper_and_what_it_calls_are_one_launch_and_a_view_none(recorded):
    step = typed_steps(recorded[0].profile, cuda=False)[-1]
    forward = {typed.name: count for typed, count in step.launches.items() if typed.phase == "forward"}
    convolutions = sum(count for name, count in forward.items() if "conv" in name)
    assert convolutions == 1  # conv2d, convolution, _convolution and the backend's
    assert sum(forward.get(name, 0) for name in ("aten::relu", "aten::clamp_min")) == 1  # the one calls the other
    assert not any(name in forward for name in ("aten::view", "aten::t", "aten::as_strided", "aten::transpose"))
