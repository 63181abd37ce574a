"""Law, definition, injected fault: recordings of small steps against the tracer, by hand, and after a failure."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from measure.model.module_paths import ModuleRanges, is_compiled
from measure.operations.tracer import StepParts, trace_step
from measure.profile.events import FLOP_RULES
from measure.profile.recording import Profile, profile_step
from measure.timing.clocks import Clock
from results.errors import Unavailable
from results.records.counts import Operation, ProfiledOperation
from tests.measure.profile.small_net import Net
from tests.measure.timing.fake_clock import FakeClock
from tests.support.nets.small_steps import Calls, parts

Calls_ = tuple[ProfiledOperation, ...]


def made(make: Callable[[], nn.Module] = Net, shape: tuple[int, ...] = (2, 4, 8, 8), **more: Any) -> StepParts:
    return parts(make, shape, **more)(None)


def profiled(step: StepParts, work: str = "batch", **more: Any) -> Profile:
    return profile_step(step.step, step.model, Clock(), pass_name=work, cuda=False, most_steps=1, **more)


def traced(step: StepParts) -> tuple[Operation, ...]:
    return trace_step(step.step, model=step.model, optimizer=step.optimizer, inputs=step.inputs).operations


def named(calls: Calls_, name: str) -> list[ProfiledOperation]:
    return [call for call in calls if call.name == name]


CASTS = pytest.mark.parametrize("autocast", [None, torch.bfloat16])


@CASTS
def test_phases_and_modules_are_the_tracers(autocast: torch.dtype | None):
    """What reaches the dispatcher under both names, one for one; composite calls are only in the profile."""
    step = made(autocast=autocast)
    names = {
        "aten.convolution", "aten.convolution_backward", "aten.relu", "aten.threshold_backward", "aten.addmm",
        "aten.mm", "aten.native_batch_norm", "aten.native_batch_norm_backward", "aten.mean", "aten.nll_loss_forward",
        "aten.nll_loss_backward", "aten._log_softmax", "aten._log_softmax_backward_data",
    }  # fmt: skip
    rows = Counter((row.name.replace("::", "."), row.phase, row.module) for row in profiled(step).operations)
    exact = Counter((o.name, o.phase, o.module) for o in traced(step))
    assert {key: n for key, n in rows.items() if key[0] in names} == {k: n for k, n in exact.items() if k[0] in names}
    assert {key[0] for key in exact} >= names


@CASTS
def test_each_gradient_leads_to_the_forward_call_that_the_tracer_names(autocast: torch.dtype | None):
    step = made(autocast=autocast)
    calls, exact = profiled(step).operations, traced(step)
    for gradient, forward, recorded in (
        ("convolution_backward", "convolution", "conv2d"),
        ("mm", "addmm", "addmm"),
        ("threshold_backward", "relu", "relu"),
        ("native_batch_norm_backward", "native_batch_norm", "batch_norm"),
    ):
        order = [o.index for o in exact if o.name == f"aten.{forward}" and o.phase == "forward"]
        expected = [(o.module, order.index(o.forward_index)) for o in exact if o.name == f"aten.{gradient}"]
        inner = [
            row.index
            for row in named(calls, f"aten::{recorded}")
            if not any(other.parent == row.index and other.name == row.name for other in calls)  # autocast's twin
        ]
        found = [(row.module, inner.index(row.forward_index)) for row in named(calls, f"aten::{gradient}")]
        assert found == expected != []


def test_names_with_a_rule_are_those_that_torch_counts():
    """Of many operators, run here, the profiler counts exactly the ones in our table."""
    image, weight, batch = torch.ones(1, 2, 5, 5), torch.ones(2, 2, 3, 3), torch.ones(2, 3, 3)
    square, volume = batch[0], torch.ones(1, 1, 3, 3, 3)
    with torch.autograd.profiler.profile(use_kineto=True, with_flops=True) as profiler:
        F.conv1d(batch, torch.ones(1, 3, 2)), F.conv2d(image, weight), F.conv3d(volume, volume)
        F.conv_transpose2d(image, weight), F.linear(square, square), F.scaled_dot_product_attention(batch, batch, batch)
        torch.mm(square, square), torch.addmm(square, square, square), torch.addmv(square[0], square, square[0])
        torch.bmm(batch, batch), torch.baddbmm(batch, batch, batch), torch.matmul(batch, square), torch.dot(*square[:2])
        square * 2, square + 2, square - 2, square / 2, square.clone().add_(1).mul_(2), torch.exp(square), square.sum()
        torch.addcmul(square, square, square), torch.einsum("ij,jk->ik", square, square), torch.relu(square)
    counted = {event.name() for event in profiler.kineto_results.events() if event.flops()}
    assert counted == FLOP_RULES


def test_under_autocast_the_inner_convolution_is_in_bf16_and_the_one_that_gradients_lead_to():
    calls = profiled(made(autocast=torch.bfloat16)).operations
    outer, inner = named(calls, "aten::conv2d")[:2]
    assert inner.parent == outer.index
    assert outer.input_dtypes[:3] == ("float", "float", "float")
    assert inner.input_dtypes[:3] == ("c10::BFloat16",) * 3
    for row in named(calls, "aten::convolution_backward"):
        assert row.input_dtypes[:3] == ("c10::BFloat16",) * 3
        forward = calls[row.forward_index]
        assert (forward.name, forward.input_dtypes[:2]) == ("aten::conv2d", ("c10::BFloat16",) * 2)
        assert forward.input_shapes[:2] == row.input_shapes[1:3]


# --- what is run, and when it is timed ---


class Timed:
    """A step whose steps take the given times on a made-up device; the first is not timed."""

    def __init__(self, *costs: tuple[float, float], has_device: bool = True) -> None:
        self.clock = FakeClock(has_device)
        self.costs = iter(costs)
        self.shapes = iter(range(1, 100))

    def __call__(self, mark: Callable[[str], None]) -> None:
        mark("forward")
        torch.ones(next(self.shapes))
        self.clock.issue(*next(self.costs))
        mark("end")

    def profiled(self, **more: Any) -> Profile:
        return profile_step(self, nn.Identity(), self.clock, **{"pass_name": "batch", "cuda": False, **more})


def test_the_first_step_is_not_timed_and_the_last_one_is_told():
    step = Timed((0.5, 9.0), (0.1, 0.2), (0.1, 0.3), (0.1, 0.4))
    profile = step.profiled()
    walls = [block.wall_s for block in profile.blocks]
    assert walls == pytest.approx([0.3, 0.4, 0.5])  # issued for 0.1 s, then waited for
    assert [block.device_s for block in profile.blocks] == pytest.approx([0.3, 0.4, 0.5])
    assert [block.sync_wait_s for block in profile.blocks] == pytest.approx([0.2, 0.3, 0.4])
    starts = [block.start_s for block in profile.blocks]
    assert starts[0] == 1009.5  # what the untimed step left on the device is over
    assert starts[1] == pytest.approx(starts[0] + walls[0])
    assert {(b.part, b.phase, b.steps, b.work) for b in profile.blocks} == {("profiled", "", 1, "")}
    (ones,) = named(profile.operations, "aten::ones")
    assert ones.concrete_inputs[0] == (4,)


# --- what it refuses ---


def test_a_second_profiler_is_unavailable_and_the_first_goes_on():
    with torch.autograd.profiler.profile(use_kineto=True) as other:
        with pytest.raises(Unavailable, match="another profiler"):
            profiled(made())
        torch.ones(1)
    assert "aten::ones" in {event.name() for event in other.kineto_results.events()}


# --- the model ---


def hooks(model: nn.Module) -> list[dict[str, Any]]:
    """Every table of hooks of every module."""
    return [{k: dict(v) for k, v in vars(m).items() if "hooks" in k and v is not None} for m in model.modules()]


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_step_that_fails_leaves_nothing_behind(phase: str, at: int):
    step, calls = made(), Counter[str]()
    before = hooks(step.model)

    def failing(mark: Callable[[str], None]) -> None:
        def marked(name: str) -> None:
            mark(name)
            calls[name] += 1
            if name == phase and calls[name] == at:
                raise MemoryError("no room")

        step.step(marked)

    with pytest.raises(MemoryError, match="no room"):
        profile_step(failing, step.model, Clock(), pass_name="batch", cuda=False)
    assert hooks(step.model) == before
    assert not torch._C._autograd._profiler_enabled()
    assert profiled(step).operations


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_has_a_phase_of_its_own_as_in_the_tracer(reentrant: bool):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=reentrant))

    def make() -> nn.Module:
        layers = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
        return Calls(forward, first=nn.Linear(4, 4), block=layers, last=nn.Linear(4, 2))

    step = made(make, (2, 4))
    calls, exact = profiled(step).operations, traced(step)
    work = ("mm", "relu", "addmm", "threshold_backward")
    found = [(row.name[6:], row.phase, row.module) for row in calls if row.name[6:] in work]
    expected = [(o.name[5:], o.phase, o.module) for o in exact if o.name[5:] in work]
    if not reentrant:  # torch breaks this call off before it reaches the dispatcher: it has all that it wanted to keep
        expected.insert(expected.index(("relu", "recompute", "block.1")) + 1, ("mm", "recompute", "block.2"))
    assert found == expected
    assert "recompute" in {phase for _, phase, _ in found}
    assert all(row.forward_index is None for row in calls if row.phase == "recompute")
    assert all(row.forward_index is not None for row in named(calls, "aten::mm") if row.phase == "backward")


def test_a_compiled_model_gets_no_hooks():
    model = Net()
    assert not is_compiled(model)
    wrapper = nn.Module()
    wrapper._orig_mod = model
    in_place = Net()
    in_place.body._compiled_call_impl = in_place.body._call_impl
    for compiled in (wrapper, in_place):
        before = hooks(compiled)
        with ModuleRanges(compiled) as ranges:
            assert ranges.compiled
            assert hooks(compiled) == before
