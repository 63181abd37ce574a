"""Definition: loops with other calls than one forward and backward pass are counted as they run, or not at all.

Every expected number is made of layers of WIDTH × WIDTH for BATCH samples: `LAYER` is one pass through one of them.
"""

import enum
import random
from dataclasses import dataclass

import pytest
import torch
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from tests.measure.meter.square_layers import BATCH, LAYER, WIDTH, measured, net, samples
from tests.support.nets.small_steps import Calls
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

AS_IT_RAN = "counted as an observed step ran it"
OUTSIDE = "ran outside of the model's calls"


def two():
    """A body and two heads."""
    return Calls(lambda m, x: (m.left(y := m.body(x)), m.right(y)), body=net(1), left=net(1), right=net(1))


def side(forward=lambda m, x: m.body(x)):
    """Half of its loss is an attribute."""

    def run(m, x):
        m.loss = m.router(x).square().mean()
        return forward(m, x)

    return Calls(run, body=net(1), router=net(1))


def _some_gradients(model):
    torch.autograd.grad(model(samples()).sum(), list(model[2].parameters()))


def _gradients_of_the_input(model):
    x = samples().requires_grad_()
    torch.autograd.grad(model(x).sum(), x)


def _heads_one_by_one(model):
    left, right = model(samples())
    left.sum().backward(retain_graph=True)
    right.sum().backward()


def _forward_mode(model):
    with torch.autograd.forward_ad.dual_level():
        model(torch.autograd.forward_ad.make_dual(samples(), samples()))


def _batched_gradients(model):
    seeds = torch.stack([torch.eye(WIDTH)[row].expand(BATCH, WIDTH) for row in range(5)])
    torch.autograd.grad(model(samples()), list(model.parameters()), seeds, is_grads_batched=True)


def _gradient_penalty(model):
    x = samples().requires_grad_()
    out = model(x).tanh().sum()
    (slope,) = torch.autograd.grad(out, x, create_graph=True)
    slope.square().sum().backward()


LOOPS = {
    # three forward; the last layer's weight
    "gradients of some parameters": (net, _some_gradients, 3 + 1),
    # three forward; the inputs of three, and no weight's gradient
    "gradients of the input": (net, _gradients_of_the_input, 3 + 3),
    # three forward; the head's weight and input, the body's weight
    "one of two outputs": (two, lambda model: model(samples())[0].sum().backward(), 3 + 3),
    # the body's weight twice
    "outputs one after the other": (two, _heads_one_by_one, 3 + 2 * 3),
    # two forward, two weights: two layers side by side
    "a part of the loss beside the output": (
        side,
        lambda model: (model(samples()).sum() + model.loss).backward(),
        2 + 2,
    ),
    # each layer: its product, that with its input's tangent, and that with its weight's, zeros (as a profiler shows)
    "forward-mode differentiation": (net, _forward_mode, 3 * 3),
    # three forward; five times the products of two inputs and three weights
    "a batch of gradients": (net, _batched_gradients, 3 + 5 * 5),
    # three forward; the input's gradient 3. Its own backward pass goes from the slope through its three products (a
    # weight's and a gradient's each), and from there, by tanh, through the model: three weights and two inputs. The
    # gradient of the slope's first factor, the seed, is asked for by tanh: 3 + 3 + 2 × 3 + 5 and the input's, which
    # is a leaf that needs one: 1
    "gradients of gradients": (net, _gradient_penalty, 3 + 3 + 2 * 3 + 5 + 1),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # by torch's forward mode
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_is_counted_as_it_runs(loop):
    build, step, layers = LOOPS[loop]
    model = build()
    found = measured(model, lambda _number: step(model))
    assert found.model_flop_per_step == layers * LAYER
    assert any(AS_IT_RAN in warning for warning in found.warnings)


@pytest.mark.parametrize("stops", [True, False])
def test_a_checkpoint_is_hardware_work_as_far_as_it_runs(stops):
    """Of the body's three layers, whose input is kept, two are enough to have what the third's gradients need."""
    model = Calls(lambda m, x: checkpoint(m.body, m.first(x), use_reentrant=False), first=net(1), body=net(3))

    def step(_number):
        with set_checkpoint_early_stop(stops):
            model(samples()).sum().backward()

    found = measured(model, step)
    assert found.model_flop_per_step == (4 + 7) * LAYER
    recomputed = (2 if stops else 3) * LAYER
    assert found.recompute_flop_per_step == recomputed
    assert found.hfu_ratio / found.utilization_ratio == pytest.approx(1 + recomputed / found.model_flop_per_step)


@pytest.mark.parametrize("way", ["a head", "forward", "a part", "a teacher"])
def test_work_outside_of_the_models_calls_is_said(way):
    model, other = net(), net(1)

    def step(_number):
        if way == "a head":
            other(model(samples())).sum().backward()  # its forward pass, its weight and its input
        elif way == "forward":
            (model.forward(samples()) + model(samples())).sum().backward()
        elif way == "a part":
            (model[0](samples()) + model(samples())).sum().backward()
        else:
            with torch.no_grad():
                known = other(samples())
            (model(samples()) - known).square().sum().backward()

    outside = {"a head": 3, "forward": 8, "a part": 2, "a teacher": 1}[way] * LAYER
    found = measured(model, step)
    assert found.model_flop_per_step == 8 * LAYER
    assert any(warning.startswith(f"{outside:,} FLOP of a step {OUTSIDE}") for warning in found.warnings)


class Kind(enum.Enum):
    LONG, SHORT = 3, 1


@dataclass
class Batch:
    values: torch.Tensor


class Varying(torch.nn.Module):
    """Runs as many layers as it is told in a way that sizes do not show."""

    def __init__(self):
        super().__init__()
        self.layers = net()
        self.depth = 3

    def forward(self, x, depth=None):
        if isinstance(x, Batch):
            x = x.values
        if callable(x):
            x = x()
        if isinstance(depth, Kind):
            depth = depth.value
        for layer in self.layers[: int(depth or self.depth)]:
            x = layer(x)
        return x


def _by_attribute(model, number):
    model.depth = 1 + number % 2
    return model(samples())


@pytest.mark.parametrize(
    "call",
    [
        _by_attribute,
        lambda model, number: model(samples(), 1.0 + number % 2),
        lambda model, number: model(lambda: samples(1 + number % 2)),
    ],
)
def test_calls_that_look_alike_and_differ_have_no_count(call):
    model = Varying()
    found = measured(model, lambda number: call(model, number).sum().backward())
    assert (found.model_flop_per_step, found.utilization_ratio, found.at_least_flop_per_step) == (None, None, None)
    assert any("equal calls of the model ran" in warning for warning in found.warnings)


def test_inputs_in_a_dataclass_and_members_of_an_enum_are_told_apart():
    model = Varying()
    found = measured(model, lambda number: model(Batch(samples(number + 1))).sum().backward())
    assert found.model_flop_per_step == 8 * LAYER * (1 + 2 + 3) / 3 / BATCH
    found = measured(model, lambda number: model(samples(), list(Kind)[number % 2]).sum().backward(), steps=4)
    assert found.model_flop_per_step == (8 + 2) / 2 * LAYER


def test_a_backward_pass_that_begins_at_no_output_leaves_no_number():
    model = side(lambda m, x: m.body(x).detach())

    def step(_number):
        model(samples())
        model.loss.backward()

    found = measured(model, step)
    assert found.model_flop_per_step is None
    assert any("began at none of its output tensors" in warning for warning in found.warnings)


@pytest.mark.parametrize("transform", ["grad", "vmap"])
def test_a_call_inside_of_a_transform_has_no_count_and_the_meter_goes_on(transform):
    model = net()
    values = {name: each.detach() for name, each in model.named_parameters()}

    def loss(values, x):
        return functional_call(model, values, (x,)).sum()

    def step(_number):
        if transform == "grad":
            torch.func.grad(loss)(values, samples())
        else:
            torch.func.vmap(model)(samples()).sum().backward()

    found = measured(model, step)
    assert (found.steps, found.model_flop_per_step) == (3, None)
    assert any("inside of a transform of torch.func" in warning for warning in found.warnings)


def test_random_loops_are_what_they_are():
    """Of random parts of a loop, each product is in the meter's count or in what it says that it has not."""
    draws = random.Random(0)
    for _ in range(6):
        model, other = net(draws.randint(1, 4)), net(1)
        ways = [draws.choice(["whole", "some", "other", "none"]) for _ in range(draws.randint(1, 3))]

        def step(_number, model=model, other=other, ways=ways):
            for way in ways:
                out = model(samples(1 + ways.index(way)))
                if way == "whole":
                    out.sum().backward()
                elif way == "some":
                    torch.autograd.grad(out.sum(), list(model[-1].parameters()))
                elif way == "other":
                    other(out).sum().backward()

        flop = 0
        layers = len(model)
        for way in ways:
            size = LAYER // BATCH * (1 + ways.index(way))
            flop += size * (layers + {"whole": 2 * layers - 1, "some": 1, "other": 2 * layers - 1, "none": 0}[way])
        assert measured(model, step).model_flop_per_step == flop, ways
