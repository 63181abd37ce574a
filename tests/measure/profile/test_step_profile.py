"""Law, definition, injected fault: a profiled step has all its time and FLOP, and leaves the model as it was."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import flopledger
from analysis.devices.precisions import PRECISIONS
from measure.profile.model_step import ModelFailed, ModelStep
from measure.profile.step_profile import profile_ready, profile_step
from measure.timing.clocks import Clock
from results.records.answers import StepModule, StepOperation, StepProfile
from tests.measure.profile.left_behind import Fails, functions, state
from tests.support.nets.small_steps import Calls
from tests.support.nets.step_nets import NETS


def check_laws(profile: StepProfile) -> None:
    """What holds of every profile: time and parameters are conserved, and times lie where they must."""
    timed = [row for row in profile.operations if row.time_s is not None]
    mean_s = math.fsum(profile.step_times_s) / len(profile.step_times_s)
    total_s = math.fsum(row.time_s for row in timed) + math.fsum(profile.between_s.values())
    assert total_s == pytest.approx(mean_s, rel=1e-12)
    assert all(value >= 0 for value in profile.between_s.values())
    assert [row.index for row in profile.operations] == list(range(len(profile.operations)))
    for row in timed:
        assert 0 <= row.time_s <= row.host_time_s + 1e-12
        assert row.kernels == 1
        assert row.waited_s >= 0
        if row.low_time_s is not None:
            room = 1e-9 * row.time_s  # the three are rounded apart
            assert row.low_time_s - room <= row.time_s <= row.high_time_s + room
    for row in profile.operations:
        if row.forward_index is not None:
            assert row.forward_index < row.index
            assert profile.operations[row.forward_index].module == row.module
    assert sum(module.own_parameters for module in profile.modules) == profile.parameters


def flop(profile: StepProfile, *phases: str) -> int:
    return sum(row.model_flop for row in profile.operations if not phases or row.phase in phases)


def named(profile: StepProfile, name: str) -> list[StepOperation]:
    return [row for row in profile.operations if row.name == name]


@pytest.mark.parametrize("name", NETS)
def test_laws(name: str):
    torch.manual_seed(0)
    model, inputs = NETS[name]()
    profile = profile_step(model, inputs, steps=2)
    check_laws(profile)
    assert profile.parameters == sum(p.numel() for p in model.parameters())
    assert [row.name for row in profile.operations if row.time_s is None and row.kind != "view"] in (
        [], ["aten.copy_"] * 2  # of the LSTM: see test_matching
    )  # fmt: skip
    counted = flopledger.count(model, inputs)
    assert flop(profile, "forward", "loss") == counted.forward_flop > 0
    assert flop(profile, "backward") == counted.backward_flop
    assert flop(profile, "recompute") == counted.recompute_flop


def slow(between: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Two layers, and between them what takes its time."""
    return Calls(lambda m, x: m.second(between(m.first(x))), first=nn.Linear(4, 4), second=nn.Linear(4, 4))


PAUSE_S = 0.02


def _pause(x: torch.Tensor) -> torch.Tensor:
    time.sleep(PAUSE_S)
    return x * 2


@contextlib.contextmanager
def pausing_operator() -> Iterator[None]:
    """While this is entered, there is an operator that takes its time."""
    library = torch.library.Library("flopledger_test", "DEF")
    library.define("pause(Tensor x) -> Tensor")
    library.impl("pause", _pause, "CPU")
    library.impl("pause", lambda x: torch.empty_like(x), "Meta")
    try:
        yield
    finally:
        library._destroy()


def test_time_is_that_of_the_operation_that_took_it():
    with pausing_operator():
        profile = profile_step(slow(torch.ops.flopledger_test.pause), torch.ones(2, 4), mode="forward")
    check_laws(profile)
    (row,) = named(profile, "flopledger_test.pause")
    assert row.low_time_s >= PAUSE_S or PAUSE_S <= row.median_time_s < 2 * PAUSE_S
    assert profile.not_understood == {"flopledger_test.pause": 1}
    others = sum(other.time_s for other in profile.operations if other is not row)
    assert others < PAUSE_S


def test_the_rows_of_a_linear_layer():
    """2 · 3 · 4 · 5 FLOP forward and as many for the weight's gradient, since the input asks for none."""
    profile = profile_step(nn.Sequential(nn.Linear(4, 5)), torch.ones(3, 4), steps=1)
    (forward,) = named(profile, "aten.addmm")
    assert (forward.kind, forward.phase, forward.module, forward.unit, forward.dtype) == (
        "matmul", "forward", "0", "fp32", "float32"
    )  # fmt: skip
    assert (forward.model_flop, forward.other_flop) == (2 * 3 * 4 * 5, 3 * 5)  # the bias: an addition an output
    assert (forward.read_bytes, forward.written_bytes) == (4 * (3 * 4 + 4 * 5 + 5), 4 * 3 * 5)
    assert (forward.input_shapes, forward.output_shapes) == (((5,), (3, 4), (4, 5)), ((3, 5),))
    (backward,) = named(profile, "aten.mm")
    assert (backward.phase, backward.module, backward.model_flop) == ("backward", "0", 2 * 3 * 4 * 5)
    assert profile.operations[backward.forward_index] is forward
    assert (forward.low_time_s, forward.median_time_s) == (None, forward.time_s)
    assert (profile.model, profile.batch_size, profile.device, profile.precision, profile.mode) == (
        "Sequential", 3, "cpu", "fp32", "train"
    )  # fmt: skip
    assert profile.modules == (
        StepModule(module="", type="Sequential", parameters=25),
        StepModule(
            module="0",
            type="Linear",
            settings="in_features=4, out_features=5, bias=True",
            own_parameters=25,
            parameters=25,
        ),
    )


# --- what is asked ---


def test_an_optimizer_trains_and_its_work_is_a_phase():
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    batch = torch.ones(4, 3)
    profile = profile_step(
        model, batch, target=torch.tensor([0, 1, 1, 0]), loss=F.cross_entropy, optimizer=optimizer, warm_up=1, steps=2
    )
    check_laws(profile)
    phases = list(dict.fromkeys(row.phase for row in profile.operations))
    assert phases == ["forward", "loss", "backward", "optimizer"]
    assert not torch.equal(model.weight, before)
    assert [state["step"] for state in optimizer.state.values()] == [3, 3], (
        "one step to warm up and two timed: no more are run"
    )


@pytest.mark.parametrize("ignored", [nn.Conv2d, "Conv2d", "stem"])
def test_ignored_modules_are_left_out(ignored: Any):
    model = Calls(lambda m, x: m.fc(m.stem(x).mean((2, 3))), stem=nn.Conv2d(3, 64, 5), fc=nn.Linear(64, 2))
    batch = torch.ones(4, 3, 40, 40)
    whole = profile_step(model, batch)
    profile = profile_step(model, batch, ignore_modules=[ignored])
    check_laws(profile)
    assert profile.parameters == 64 * 2 + 2
    assert [row.module for row in profile.modules] == ["", "fc"]
    assert flop(profile) == flop(whole) - 2 * (2 * 4 * 64 * 36 * 36 * 3 * 25) == 3 * (2 * 4 * 64 * 2)
    assert not any(row.kind == "convolution" for row in profile.operations)
    assert "of ignored modules are left out" in profile.notes[-1]
    assert float(profile.notes[-1].split()[-2]) > 0  # seconds, which `check_laws` has found in no sum


def test_what_cannot_be_asked():
    model, batch = nn.Linear(4, 4), torch.ones(2, 4)
    for told, more in (
        ("expected a mode", {"mode": "backward"}),
        ("expected steps from 1, warm_up", {"steps": 0}),
        ("expected a loss of output and target, got only a target", {"target": torch.tensor([0, 1])}),
        (
            "expected an optimizer of the model's parameters",
            {"optimizer": torch.optim.SGD(nn.Linear(4, 4).parameters(), 0.1)},
        ),
        (
            "expected a module's class or path to ignore, got Conv2d; its classes: Linear",
            {"ignore_modules": ["Conv2d"]},
        ),
        ("expected parts of the model to ignore", {"ignore_modules": [nn.Linear]}),
        ("expected a loss of one number with a gradient, got a tensor", {"loss": lambda output: output.detach().sum()}),
    ):
        with pytest.raises(ValueError, match=told):
            profile_step(model, batch, **more)
    for wrong in (lambda x: x, batch, "resnet18"):
        with pytest.raises(ValueError, match=r"expected a torch\.nn\.Module, got (function|Tensor|str)"):
            profile_step(wrong, batch)
    with pytest.raises(ValueError, match="meta"):
        profile_step(nn.Linear(4, 4, device="meta"), torch.ones(2, 4, device="meta"))


def test_on_cuda_the_first_step_under_the_profiler_does_not_count(monkeypatch: pytest.MonkeyPatch):
    """The driver is made up and gives no kernel. Steps: the table's, one to warm up, one for CUPTI, two that count."""
    for name, instead in (("check_available", lambda cuda: None), ("kernel_device", lambda cuda: None)):
        monkeypatch.setattr(f"measure.profile.recording.{name}", instead)
    monkeypatch.setattr("measure.profile.recording.clock_for", lambda device: Clock())
    calls = []
    model = Calls(lambda m, x: calls.append(m.layer(x)), layer=nn.Linear(4, 4))
    step = ModelStep(model, (torch.ones(2, 4),), {}, None, None, None, "forward", PRECISIONS["fp32"], "cuda")
    profile = profile_ready(step, StepProfile(model="mine", batch_size=2, device="cuda"), steps=2)
    assert len(calls) == 5
    assert len(profile.step_times_s) == 2
    assert {row.time_s for row in profile.operations} == {None}
    assert profile.notes[-1].startswith("no kernels: the profiler got none from CUPTI")


# --- what is left behind ---


@pytest.mark.parametrize("mode", ["train", "forward"])
def test_nothing_is_left_behind(mode: str):
    """The hooks, modes, weights, running means, gradients and random numbers are as before, and torch is untouched."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    model[0].eval()
    model(torch.randn(3, 4)).sum().backward()
    before, all_functions = state(model), functions()
    profile_step(model, torch.randn(3, 4), mode=mode, steps=1)
    assert state(model)[:7] == before[:7]
    assert state(model)[8:] == before[8:]
    assert functions() == all_functions


def test_inputs_that_ask_for_a_gradient_keep_the_one_they_have():
    """And each step begins without one, so that none adds to another's."""
    batch = torch.ones(3, 4, requires_grad=True)
    batch.grad = kept = torch.full((3, 4), 7.0)
    profile = profile_step(nn.Linear(4, 4), batch, steps=2)
    assert batch.grad is kept
    assert torch.equal(kept, torch.full((3, 4), 7.0))
    assert flop(profile, "backward") == 2 * (2 * 3 * 4 * 4)  # of the weight and of the input
    assert not any("of no operation" in note for note in profile.notes)


@pytest.mark.parametrize("mode", ["train", "forward"])
def test_a_model_that_fails_is_told_by_its_module_and_left_as_it_was(mode: str, capfd: Any):
    model, batch = Fails(), torch.ones(3, 4)
    before, all_functions = state(model), functions()
    with pytest.raises(ModelFailed) as said:
        profile_step(model, batch, mode=mode)
    assert str(said.value).startswith("the model failed in module body.3 (Linear), which got (3, 4): RuntimeError: ")
    assert "mat1 and mat2 shapes cannot be multiplied" in str(said.value)
    assert isinstance(said.value.__cause__, RuntimeError)
    assert state(model) == before
    assert functions() == all_functions
    assert capfd.readouterr().err.count("Traceback") == 0  # fake tensors log what they cannot run
    profile_step(nn.Linear(4, 4), batch, steps=1)  # and the next profile runs


def test_autocast(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "measure.device.apply_precision.supported", lambda *_: None
    )  # whether this CPU is fast at it is no matter
    profile = profile_step(nn.Linear(8, 8), torch.ones(2, 8), precision="amp-bf16", steps=1)
    check_laws(profile)
    row = next(row for row in profile.operations if row.kind == "matmul")
    assert (row.unit, row.dtype) == ("bf16", "bfloat16")
    assert all(row.time_s is not None for row in profile.operations)
