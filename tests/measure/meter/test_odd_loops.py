"""Twenty loops that are no plain training: each has the exact FLOP of its steps, or none, with the reason.

Counts are in passes through one layer of WIDTH × WIDTH for BATCH samples. A net of three: forward 3, backward three
weights and two inputs.
"""

import copy
import random

import pytest
import torch
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from measure.meter.meter import UtilizationMeter
from tests.measure.meter.square_layers import BATCH, LAYER, WIDTH, net, samples
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

STEPS = 12


def trained(model):
    model(samples()).square().mean().backward()


def gan(model):
    """The critic: real and generated samples 2 · 8; frozen on the way to the generator 3, and three inputs back."""
    made = net(1)(samples())
    (model(samples()).mean() - model(made.detach()).mean()).backward()
    model.requires_grad_(False)
    model(made).mean().backward()
    model.requires_grad_(True)


def gradient_penalty(model):
    """3, back to the input 3; through that 5, and through the first pass 6, whose input is a leaf that needs one."""
    x = samples().requires_grad_()
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (out.mean() + (slope.norm(dim=1) - 1).square().mean()).backward()


def lbfgs(model):
    """Three closures."""
    x = samples()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=3, tolerance_grad=0, tolerance_change=0)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def sharpness_aware(model):
    """A pass to find the worst weights nearby, and one there."""
    x = samples()
    model(x).square().mean().backward()
    moves = [each.grad.clone() for each in model.parameters()]
    with torch.no_grad():
        for each, move in zip(model.parameters(), moves, strict=True):
            each.add_(move)
    model(x).square().mean().backward()
    with torch.no_grad():
        for each, move in zip(model.parameters(), moves, strict=True):
            each.sub_(move)


def averaged(model):
    """Averages of weights are no products, and the copy's evaluation is none of the model's calls."""
    trained(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)


def evaluated(model):
    """A batch of twice the size, without gradients."""
    model.eval()
    with torch.no_grad():
        model(samples(2 * BATCH))
    model.train()
    trained(model)


def called_by_function(model):
    """With detached parameters: three inputs' gradients."""
    values = {name: each.detach() for name, each in model.named_parameters()}
    functional_call(model, values, (samples().requires_grad_(),)).sum().backward()


def two_losses(model):
    out = model(samples())
    out.sum().backward(retain_graph=True)
    out.square().sum().backward()


def checkpointed(model):
    """Around the whole model, whose input needs a gradient."""
    checkpoint(model, samples().requires_grad_(), use_reentrant=False).sum().backward()


def under_autocast(model):
    with torch.autocast("cpu", torch.bfloat16):
        model(samples()).float().square().mean().backward()


EXACT = {
    "gan": (net, gan, 2 * 8 + 3 + 3),
    "gradient penalty": (net, gradient_penalty, 3 + 3 + 5 + 6),
    "lbfgs": (net, lbfgs, 3 * 8),
    "sharpness-aware": (net, sharpness_aware, 2 * 8),
    "averaged weights": (net, averaged, 8),
    "evaluation inside": (net, evaluated, 2 * 3 + 8),
    "functional_call": (net, called_by_function, 3 + 3),
    "two losses": (net, two_losses, 3 + 2 * 5),
    "checkpoint around the model": (net, checkpointed, 3 + 6),
    "autocast": (net, under_autocast, 8),
}


def measured(model, step, steps=STEPS, **options):
    meter = UtilizationMeter(model, energy=False, **{"warm_up_steps": 0, **options})
    for _ in range(steps):
        with meter.step():
            step(model)
    return meter.summary()


@pytest.mark.parametrize("name", EXACT)
def test_a_loop_has_the_flop_of_what_it_runs(name):
    build, step, layers = EXACT[name]
    found = measured(build(), step)
    assert found.model_flop_per_step == layers * LAYER, found.warnings
    assert (found.steps, found.lost_steps) == (STEPS, 0)


def test_accumulation_whose_last_step_is_short():
    model = net()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    for sizes in [(BATCH,) * 4] * 5 + [(BATCH, BATCH // 2)]:
        with meter.step():
            for size in sizes:
                model(samples(size)).square().mean().backward()
    assert meter.summary().model_flop_per_step == 8 * LAYER * (5 * 4 + 1.5) / 6


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


def test_an_early_exit_by_an_argument_is_another_kind_of_call():
    model = Deep()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    for number in range(STEPS):
        with meter.step():
            model(samples(), 1 + number % 3).sum().backward()
    assert meter.summary().model_flop_per_step == (2 + 5 + 8) / 3 * LAYER


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
    def step(model):
        out = model(samples())
        if out.requires_grad:
            out.sum().backward()

    found = measured(Deep(leaves), step)
    assert (found.steps, found.model_flop_per_step) == (STEPS, None)
    assert any(reason in each for each in found.warnings), found.warnings


def test_random_numbers_that_change_nothing_are_told_and_go_on_as_without_a_meter():
    model = Deep(lambda _x: random.random() > 1)
    random.seed(5)
    found = measured(model, trained, steps=3)
    assert found.model_flop_per_step == 8 * LAYER
    assert any("drew random numbers" in each for each in found.warnings)
    after = random.random()
    random.seed(5)
    assert [random.random() for _ in range(3 * 3 + 1)][-1] == after


def test_a_compiled_model_is_counted_and_never_verified():
    model = net()
    compiled = torch.compile(model, backend="eager")
    meter = UtilizationMeter(compiled, energy=False, warm_up_steps=0)
    for _ in range(3):
        with meter.step():
            compiled(samples()).square().mean().backward()
    found = meter.summary()
    torch._dynamo.reset()
    assert found.model_flop_per_step == 8 * LAYER
    assert (found.unverified_steps, found.unverified_since_step) == (3, 0)
    assert "compiled" in found.unverified_reason


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo's, at a graph's end
def test_a_function_that_calls_the_model_may_be_compiled():
    model = net()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    call = torch.compile(lambda batch: model(batch).sum(), backend="aot_eager")
    for _ in range(8):
        with meter.step():
            call(samples()).backward()
    torch._dynamo.reset()
    assert meter.summary().model_flop_per_step == 8 * LAYER


def test_a_model_under_the_meter_is_saved_and_copied_without_hooks():
    model = net()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    with meter.step():
        twin = copy.deepcopy(model)
        trained(twin)
        trained(model)
    assert meter.summary().model_flop_per_step == 8 * LAYER
    meter.close()
    assert not model._forward_hooks


def test_sizes_that_are_new_in_each_step_are_observed_in_one_of_eight():
    model = net()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    for number in range(40):
        with meter.step():
            model(samples(number + 1)).sum().backward()
    found = meter.summary()
    assert found.model_flop_per_step == 8 * LAYER / BATCH * sum(range(1, 41)) / 40
    assert sum(block.observed for block in meter._run.blocks) <= 40 / 8


def test_truncated_backpropagation_through_time():
    """Three parts of a sequence of 5: gates of input and state, 2 · 3 products a word. Backward: both weights; the
    state's of all words but the first of a part, whose state is detached."""
    model = torch.nn.GRU(WIDTH, WIDTH, batch_first=True)

    def step(model):
        state = torch.zeros(1, BATCH, WIDTH)
        for _ in range(3):
            out, state = model(torch.randn(BATCH, 5, WIDTH), state.detach())
            out.square().mean().backward()

    assert measured(model, step).model_flop_per_step == 3 * 3 * (2 * 5 + 2 * 5 + 4) * LAYER


def test_per_sample_gradients_have_no_flop():
    model = net()

    def step(model):
        values = {name: each.detach() for name, each in model.named_parameters()}
        loss = lambda values, x: functional_call(model, values, (x,)).sum()  # noqa: E731
        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(values, samples())

    found = measured(model, step)
    assert (found.steps, found.model_flop_per_step) == (STEPS, None)
    assert any("inside of a transform of torch.func" in each for each in found.warnings)


def test_weights_that_two_layers_share():
    model = net()
    model[2].weight = model[0].weight
    assert measured(model, trained).model_flop_per_step == 8 * LAYER


def test_weights_pruned_by_a_mask_are_counted_dense():
    from torch.nn.utils import prune

    model = net()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    for number in range(STEPS):
        if number == 5:
            prune.l1_unstructured(model[1], "weight", 0.5)
        with meter.step():
            model(samples()).sum().backward()
    assert meter.summary().model_flop_per_step == 8 * LAYER


def test_meters_of_a_model_and_of_a_part_of_it():
    model = net()
    outer, inner = (UtilizationMeter(each, energy=False, warm_up_steps=0) for each in (model, model[1]))
    for _ in range(STEPS):
        with outer.step(), inner.step():
            trained(model)
    assert outer.summary().model_flop_per_step == 8 * LAYER
    found = inner.summary()
    assert found.model_flop_per_step == 3 * LAYER  # its weight's gradient and its input's
    assert any(each.startswith(f"{5 * LAYER:,} FLOP of a step ran outside") for each in found.warnings)


def test_a_model_becomes_what_it_becomes_without_a_meter():
    first = torch.nn.Sequential(net(2), torch.nn.Dropout(0.5), net(1))
    other = copy.deepcopy(first)
    for model, metered in ((first, True), (other, False)):
        torch.manual_seed(3)
        optimizer = torch.optim.AdamW(model.parameters())
        meter = UtilizationMeter(model, energy=False, hook_every=2) if metered else None
        for _ in range(6):
            if meter:
                meter.begin()
            optimizer.zero_grad()
            checkpoint(model, samples(), use_reentrant=False).square().mean().backward()
            optimizer.step()
            if meter:
                meter.update()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
