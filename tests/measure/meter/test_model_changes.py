"""Definition: while a model changes, a step has the FLOP of the model that it ran, or none, with the reason.

Counts are in passes through one square layer without a bias, of BATCH samples. Forward 2 layers, backward two weights
and one input: 5 a step.
"""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.measure.meter.square_layers import LAYER, WIDTH, meter_of, samples
from tests.support.nets.small_steps import Calls
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

CHANGE = 20


def square():
    return torch.nn.Linear(WIDTH, WIDTH, bias=False)


def adapt(model):
    """Each layer is frozen and has a low-rank one beside it."""
    for place in (0, 1):
        down = torch.nn.Linear(WIDTH, WIDTH // 4, bias=False)
        up = torch.nn.Linear(WIDTH // 4, WIDTH, bias=False)
        base = model[place].requires_grad_(False)
        model[place] = Calls(lambda m, x: m.base(x) + m.up(m.down(x)), base=base, down=down, up=up)


def use_twice(model):
    """The same parameters in another course."""
    model[1] = Calls(lambda m, x: m.base(m.base(x)), base=model[1])


CHANGES = {
    # three layers: forward 3, three weights, two inputs
    "a layer grown": (lambda model: model.append(square()), 5, 8),
    # the last layer half as wide
    "a layer pruned": (lambda model: model.__setitem__(1, torch.nn.Linear(WIDTH, WIDTH // 2, bias=False)), 5, 3.5),
    "a layer thawed": (lambda model: model[0].requires_grad_(True), 3, 5),
    "a layer frozen": (lambda model: model[0].requires_grad_(False), 5, 3),
    "a layer taken out": (lambda model: model.__delitem__(1), 5, 2),
    # forward 2 · (1 + ½). Backward: first layer's adapters: both weights ¼ each and what is between ¼; the second's:
    # weights ¼ each, inputs of up ¼ and of down ¼, and through the frozen layer 1
    "low rank injected": (adapt, 5, 3 + 3 / 4 + 1 + 1),
    "a layer used twice": (use_twice, 5, 8),
}


def looped(model, change, steps, *, window=0, **options):
    """(meter, its windows) of a loop before each step of which change(model, number) is called."""
    meter, windows = meter_of(model, **options), []
    for number in range(steps):
        change(model, number)
        with meter.step():
            model(samples()).square().mean().backward()
        if window and (number + 1) % window == 0:
            windows.append(meter.window())
    return meter, windows


def metered(before, change, steps, **options):
    """(summary, windows) of two layers that change once."""
    model = torch.nn.Sequential(square(), square())
    model[0].requires_grad_(before != 3)
    meter, windows = looped(model, lambda m, number: number == CHANGE and change(m), steps, **options)
    return meter.summary(), windows


@pytest.mark.parametrize("options", [{}, {"every": 1}, {"watch": False}], ids=["drawn", "each", "none"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_a_look_shows_is_counted_from_the_step_that_has_it(name, options):
    change, before, after = CHANGES[name]
    found, windows = metered(before, change, 40, window=5, **options)
    assert found.model_flop_per_step == (before + after) / 2 * LAYER
    assert [each.model_flop_per_step / LAYER for each in windows] == [before] * 4 + [after] * 4
    assert found.steps == 40
    assert (found.lost_steps, [each for each in found.warnings if "FLOP" in each]) == (0, [])


def deep(depth_of, steps, **options):
    """(meter, windows) of a model that runs as many layers as a number of its own says, which no look shows."""

    def forward(m, x):
        for layer in m.layers[: m.depth]:
            x = layer(x)
        return x

    model = Calls(forward, layers=torch.nn.ModuleList([square(), square(), square()]))
    return looped(model, lambda m, number: setattr(m, "depth", depth_of(number)), steps, **options)


def test_steps_before_an_observation_that_differs_have_no_flop_and_the_summary_says_how_many():
    """Steps are observed in one of four, drawn: the ones since the last that saw three layers may have had two."""
    meter, _ = deep(lambda number: 3 if number < 50 else 2, 100, every=4)
    found = meter.summary()
    assert (found.model_flop_per_step, found.utilization_ratio) == (None, None)
    assert 1 <= found.lost_steps < 16
    assert found.lost_steps == found.unknown_calls
    assert any(each.startswith(f"{found.lost_steps} steps have no FLOP: equal calls of") for each in found.warnings)
    known = 100 - found.lost_steps
    assert 5 * known * LAYER <= found.at_least_flop_per_step * 100 <= 8 * known * LAYER
    assert meter.window().steps == 100


def test_a_change_that_nothing_observed_is_marked_as_unverified():
    meter, _ = deep(lambda number: 3 if number < 10 else 2, 20)
    found = meter.summary()
    assert found.model_flop_per_step == 8 * LAYER
    assert (found.unverified_steps, found.unverified_since_step, found.unverified_reason) == (18, 2, "")
    assert "unverified  since step 2 (18 steps)" in str(found).splitlines()


def test_a_second_change_that_no_look_shows_leaves_no_number_at_all():
    _, windows = deep(lambda number: 2 if 50 <= number <= 120 else 3, 400, window=200, every=4)
    found = windows[1]
    assert found.model_flop_per_step is None
    assert any("sizes and modes do not determine their cost" in each for each in found.warnings)


def test_a_checkpoint_switched_on_in_the_middle_is_observed_or_said_to_be_unverified():
    def switch(model):
        forward = model.forward
        model.forward = lambda x: checkpoint(forward, x, use_reentrant=False)  # the first layer is run again

    found, _ = metered(5, switch, 40, every=3)
    assert (found.model_flop_per_step, found.lost_steps > 0) == (None, True)
    found, _ = metered(5, switch, 40)
    assert (found.model_flop_per_step, found.unverified_since_step) == (5 * LAYER, 2)


def test_an_observed_step_is_in_the_flop_and_in_no_time():
    found, _ = metered(5, lambda model: None, 64, every=2)
    assert (found.steps, found.model_flop_per_step) == (64, 5 * LAYER)
    meter, _ = deep(lambda _number: 3, 64, every=2)
    meter._take(wait=True)
    timed = sum(block.steps for block in meter._run.blocks)
    assert 16 < timed < 48
    assert timed + sum(block.observed for block in meter._run.blocks) == 64
