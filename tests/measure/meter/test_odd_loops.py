"""Definition, law: loops that are no plain training have the exact FLOP of their steps, or none with the reason.

Counts are in passes through one layer of WIDTH × WIDTH for BATCH samples. A net of three: forward 3, backward three
weights and two inputs.
"""

import contextlib
import copy
import random

import pytest
import torch
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from tests.measure.meter.square_layers import BATCH, LAYER, measured, meter_of, net, samples
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

STEPS = 12


def trained(model):
    model(samples()).square().mean().backward()


def called_by_function(model):
    """With detached parameters: three inputs' gradients."""
    values = {name: each.detach() for name, each in model.named_parameters()}
    functional_call(model, values, (samples().requires_grad_(),)).sum().backward()


def two_losses(model):
    out = model(samples())
    out.sum().backward(retain_graph=True)
    out.square().sum().backward()


@pytest.mark.parametrize(("step", "layers"), [(called_by_function, 3 + 3), (two_losses, 3 + 2 * 5)])
def test_a_loop_has_the_flop_of_what_it_runs(step, layers):
    model = net()
    found = measured(model, lambda _number: step(model), STEPS)
    assert found.model_flop_per_step == layers * LAYER, found.warnings
    assert (found.steps, found.lost_steps) == (STEPS, 0)


def test_accumulation_whose_last_step_is_short():
    model, sizes = net(), [(BATCH,) * 4] * 5 + [(BATCH, BATCH // 2)]

    def step(number):
        for size in sizes[number]:
            model(samples(size)).square().mean().backward()

    found = measured(model, step, len(sizes))
    assert found.model_flop_per_step == 8 * LAYER * (5 * 4 + 1.5) / 6
    assert found.items_per_s == pytest.approx(BATCH * (5 * 4 + 1.5) / 6 / found.step_time_s)


class Deep(torch.nn.Module):
    """Leaves after as many layers as its caller, chance or its values say."""

    def __init__(self, leaves=lambda _x: False):
        super().__init__()
        self.layers, self.leaves = net(), leaves

    def forward(self, x, depth=3):
        for layer in self.layers[:depth]:
            if self.leaves(x):
                break
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("leaves", "reason"),
    [
        (lambda x: x.square().mean() > 1, "not counted: fake tensors cannot run"),
        (lambda _x: random.random() < 0.5, "drew random numbers while it ran, and what it runs depends on them"),
        (lambda _x: torch.rand(()).item() < 0.5, "not counted: fake tensors cannot run"),
    ],
    ids=["early exit by values", "layer drop", "layer drop by torch"],
)
def test_a_course_that_sizes_do_not_say_has_no_flop(leaves, reason):
    model = Deep(leaves)

    def step(_number):
        out = model(samples())
        if out.requires_grad:
            out.sum().backward()

    found = measured(model, step, STEPS)
    assert (found.steps, found.model_flop_per_step) == (STEPS, None)
    assert any(reason in each for each in found.warnings), found.warnings


def test_random_numbers_that_change_nothing_are_told_and_go_on_as_without_a_meter():
    model = Deep(lambda _x: random.random() > 1)
    random.seed(5)
    found = measured(model, lambda _number: trained(model))
    assert found.model_flop_per_step == 8 * LAYER
    assert any("drew random numbers" in each for each in found.warnings)
    after = random.random()
    random.seed(5)
    assert [random.random() for _ in range(3 * 3 + 1)][-1] == after


def test_a_compiled_model_is_counted_and_never_verified():
    compiled = torch.compile(net(), backend="eager")
    found = measured(compiled, lambda _number: trained(compiled))
    torch._dynamo.reset()
    assert found.model_flop_per_step == 8 * LAYER
    assert (found.unverified_steps, found.unverified_since_step) == (3, 0)
    assert "compiled" in found.unverified_reason


def test_a_model_becomes_what_it_becomes_without_a_meter():
    first = torch.nn.Sequential(net(2), torch.nn.Dropout(0.5), net(1))
    other = copy.deepcopy(first)
    for model, metered in ((first, True), (other, False)):
        torch.manual_seed(3)
        optimizer = torch.optim.AdamW(model.parameters())
        enter = meter_of(model, every=2).step if metered else contextlib.nullcontext
        for _ in range(6):
            with enter():
                optimizer.zero_grad()
                checkpoint(model, samples(), use_reentrant=False).square().mean().backward()
                optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
