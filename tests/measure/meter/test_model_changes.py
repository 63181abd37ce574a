"""A model that changes while a loop trains it: a step has the FLOP of the model that it ran, or none, with the reason.

Counts are in passes through one square layer without a bias, of BATCH samples. Forward 2 layers, backward two weights
and one input: 5 a step.
"""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from measure.meter.meter import UtilizationMeter
from tests.measure.meter.square_layers import BATCH, LAYER, WIDTH, samples
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

CHANGE = 20


def square():
    return torch.nn.Linear(WIDTH, WIDTH, bias=False)


class Adapted(torch.nn.Module):
    """A frozen layer with a low-rank one beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = torch.nn.Linear(WIDTH, WIDTH // 4, bias=False)
        self.up = torch.nn.Linear(WIDTH // 4, WIDTH, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Twice(torch.nn.Module):
    """The same parameters in another course."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(self.base(x))


def adapt(model):
    for place in (0, 1):
        model[place] = Adapted(model[place])


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
    "a layer used twice": (lambda model: model.__setitem__(1, Twice(model[1])), 5, 8),
}


def metered(before, change, steps, *, at=CHANGE, window=0, **options):
    """(summary, layers a step in each window) of a loop whose model changes."""
    model = torch.nn.Sequential(square(), square())
    if before == 3:
        model[0].requires_grad_(False)
    options = {"energy": False, "warm_up_steps": 0, **options}
    meter, windows = UtilizationMeter(model, **options), []
    for number in range(steps):
        if number == at:
            change(model)
        with meter.step():
            model(samples()).square().mean().backward()
        if window and (number + 1) % window == 0:
            windows.append(meter.window())
    return meter.summary(), windows


@pytest.mark.parametrize("options", [{}, {"hook_every": 1}, {"watch": False}], ids=["drawn", "each", "none"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_a_look_shows_is_counted_from_the_step_that_has_it(name, options):
    change, before, after = CHANGES[name]
    found, windows = metered(before, change, 40, window=5, **options)
    assert found.model_flop_per_step == (before + after) / 2 * LAYER
    assert [each.model_flop_per_step / LAYER for each in windows] == [before] * 4 + [after] * 4
    assert found.steps == 40
    assert (found.lost_steps, [each for each in found.warnings if "FLOP" in each]) == (0, [])


def test_layers_frozen_and_thawed_in_turn_are_two_states_of_one_model():
    model = torch.nn.Sequential(square(), square())
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    counted = []
    original = meter._costs._count
    meter._costs._count = lambda key, *call: (counted.append(key), original(key, *call))[1]
    for number in range(12):
        model[0].requires_grad_(number % 2 == 0)
        with meter.step():
            model(samples()).square().mean().backward()
    assert meter.summary().model_flop_per_step == (5 + 3) / 2 * LAYER
    assert len(counted) == 2


class Deep(torch.nn.Module):
    """Runs as many layers as a number of its own says, which no look shows."""

    def __init__(self):
        super().__init__()
        self.layers, self.depth = torch.nn.ModuleList([square(), square(), square()]), 3

    def forward(self, x):
        for layer in self.layers[: self.depth]:
            x = layer(x)
        return x


def hidden(steps, at, **options):
    model = Deep()
    meter = UtilizationMeter(model, energy=False, **{"warm_up_steps": 0, **options})
    for number in range(steps):
        model.depth = 3 if number < at else 2
        with meter.step():
            model(samples()).square().mean().backward()
    return meter


def test_steps_before_an_observation_that_differs_have_no_flop_and_the_summary_says_how_many():
    """Steps are observed in one of four, drawn: the ones since the last that saw three layers may have had two."""
    meter = hidden(100, 50, hook_every=4)
    found = meter.summary()
    assert (found.model_flop_per_step, found.utilization_ratio) == (None, None)
    assert 1 <= found.lost_steps < 16
    assert found.lost_steps == found.unknown_calls
    assert any(each.startswith(f"{found.lost_steps} steps have no FLOP: equal calls of") for each in found.warnings)
    known = 100 - found.lost_steps
    assert 5 * known * LAYER <= found.at_least_flop_per_step * 100 <= 8 * known * LAYER
    assert meter.window().steps == 100
    assert meter.module_flop() is None


def test_a_window_after_such_a_change_has_the_flop_of_the_model_that_is():
    model = Deep()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0, hook_every=4)
    windows = []
    for number in range(200):
        model.depth = 3 if number < 50 else 2
        with meter.step():
            model(samples()).square().mean().backward()
        if number % 100 == 99:
            windows.append(meter.window())
    assert windows[0].model_flop_per_step is None
    assert windows[1].model_flop_per_step == 5 * LAYER


def test_a_change_that_nothing_observed_is_marked_as_unverified():
    found = hidden(20, 10).summary()
    assert found.model_flop_per_step == 8 * LAYER
    assert (found.unverified_steps, found.unverified_since_step, found.unverified_reason) == (18, 2, "")
    assert "unverified  since step 2 (18 steps)" in str(found).splitlines()


def test_a_second_change_that_no_look_shows_leaves_no_number_at_all():
    model = Deep()
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0, hook_every=4)
    for number in range(200):
        model.depth = 3 if number < 50 or number > 120 else 2
        with meter.step():
            model(samples()).square().mean().backward()
    meter.window()
    with meter.step():
        model(samples()).square().mean().backward()
    found = meter.window()
    assert found.model_flop_per_step is None
    assert any("sizes and modes do not say what they cost" in each for each in found.warnings)


def test_the_last_step_of_a_window_as_long_as_the_one_before_is_observed(monkeypatch):
    monkeypatch.setattr("measure.meter.observed.observations.BUDGET_S", 1.0)
    model = torch.nn.Sequential(square(), square())
    meter = UtilizationMeter(model, energy=False, warm_up_steps=0)
    unverified = []
    for number in range(50):
        with meter.step():
            model(samples()).square().mean().backward()
        if number % 10 == 9:
            unverified.append(meter.window().unverified_steps)
    assert unverified[2:] == [0, 0, 0]


def test_a_checkpoint_switched_on_in_the_middle_is_observed_or_said_to_be_unverified():
    def switch(model):
        forward = model.forward
        model.forward = lambda x: checkpoint(forward, x, use_reentrant=False)  # the first layer is run again

    found, _ = metered(5, switch, 40, hook_every=3)
    assert (found.model_flop_per_step, found.lost_steps > 0) == (None, True)
    found, _ = metered(5, switch, 40)
    assert (found.model_flop_per_step, found.unverified_since_step) == (5 * LAYER, 2)


def test_an_observed_step_is_in_the_flop_and_in_no_time():
    found, _ = metered(5, lambda model: None, 64, hook_every=2)
    assert (found.steps, found.model_flop_per_step) == (64, 5 * LAYER)
    meter = hidden(64, 64, hook_every=2)
    meter._take(wait=True)
    timed = sum(block.steps for block in meter._run.blocks)
    assert 16 < timed < 48
    assert timed + sum(block.observed for block in meter._run.blocks) == 64


def test_samples_have_the_size_that_counts_are_made_of():
    assert 2 * BATCH * WIDTH * WIDTH == LAYER
