"""Loops in which not each step is observed: what they count, and what they say when steps differ."""

import contextlib

import pytest
import torch

from measure.meter.meter import UtilizationMeter
from tests.measure.meter.square_layers import BATCH, LAYER, net, samples
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

STEP = 3 * LAYER + 5 * LAYER  # of `net`: three layers; the first one's input needs no gradient
EVERY = 8


def _meter(model, **options):
    return UtilizationMeter(model, warm_up_steps=0, energy=False, hook_every=EVERY, **options)


def _looked_at(meter, model, batches, backward=lambda _step: True):
    """The numbers of the steps that were observed."""
    looked = []
    for step, batch in enumerate(batches):
        with meter.step(batch):
            loss = model(batch).sum()
            if model._forward_hooks:
                looked.append(step)
            if backward(step):
                loss.backward()
    return looked


def test_equal_steps_are_looked_at_in_one_of_so_many_and_counted_exactly():
    model = net()
    meter = _meter(model, watch=False)
    looked = _looked_at(meter, model, [samples()] * 400)
    found = meter.summary()
    assert found.steps == 400
    assert found.model_flop_per_step == STEP
    assert found.items_per_s == pytest.approx(BATCH / found.step_time_s)
    assert 400 / EVERY / 2 < len(looked) < 400 / EVERY * 2
    assert len(set(map(int.__sub__, looked[1:], looked))) > 3  # at random distances


def test_each_size_of_inputs_has_passes_of_its_own():
    model = net()
    meter = _meter(model, watch=False)
    batches = [samples() if step % 3 else samples()[: BATCH // 2] for step in range(300)]
    looked = _looked_at(meter, model, batches)
    assert meter.summary().model_flop_per_step == STEP * (200 + 100 / 2) / 300
    assert len(looked) < 100


def test_a_mode_of_the_model_has_passes_of_its_own():
    model = net()
    meter = _meter(model, watch=False)
    for step in range(200):
        model.train(step % 2 == 0)
        with meter.step(samples()):
            with torch.set_grad_enabled(model.training):
                loss = model(samples()).sum()
            if model.training:
                loss.backward()
    assert meter.summary().model_flop_per_step == (STEP + 3 * LAYER) / 2


def test_a_loop_that_changes_its_course_is_named_and_looked_at_in_each_step_from_there():
    model = net()
    meter = _meter(model, watch=False)
    with pytest.warns(RuntimeWarning, match="ran different passes"):
        looked = _looked_at(meter, model, [samples()] * 300, backward=lambda step: step < 100)
    meter.window()
    assert looked[-150:] == list(range(150, 300))
    assert any("ran different passes" in each for each in meter.summary().warnings)
    with meter.step(samples()):
        model(samples())
    assert meter.window().model_flop_per_step == 3 * LAYER


def test_steps_without_inputs_are_all_looked_at():
    model = net()
    meter = _meter(model, watch=False)

    def step(number):
        with meter.step():
            loss = model(samples()).sum()
            if number % 2:
                loss.backward()
            return bool(model._forward_hooks)

    with pytest.warns(RuntimeWarning, match="hook_every needs the inputs"):
        step(0)
    assert all(step(number) for number in range(1, 40))
    assert meter.summary().model_flop_per_step == (STEP + 3 * LAYER) / 2


def test_a_model_that_was_frozen_is_looked_at_anew():
    model = net()
    meter = _meter(model, watch=False)
    _looked_at(meter, model, [samples()] * 40)
    meter.window()
    for each in model[0].parameters():
        each.requires_grad_(False)
    meter.window()
    assert _looked_at(meter, model, [samples()] * 40)[:2] == [0, 1]
    assert meter.window().model_flop_per_step == STEP - 2 * LAYER  # of the first layer's weights and the second's input


def test_a_step_that_failed_or_was_never_ended_is_not_counted():
    model = net()
    meter = _meter(model, watch=False)
    _looked_at(meter, model, [samples()] * 40)
    for _ in range(30):
        with contextlib.suppress(KeyError), meter.step(samples()):
            raise KeyError
    assert meter.summary().steps == 40
    meter.step(samples()).__enter__()
    with pytest.warns(RuntimeWarning, match="begun inside of another one"):
        _looked_at(meter, model, [samples()] * 40)
    assert meter.summary().steps == 80
    assert meter.summary().model_flop_per_step == STEP


def test_items_that_the_caller_gives_are_those_of_each_step():
    model = net()
    meter = _meter(model, watch=False)
    for step in range(60):
        with meter.step(samples(), items=step):
            model(samples()).sum().backward()
    found = meter.summary()
    assert found.items_per_s * found.step_time_s == pytest.approx(59 / 2)


def test_a_compiled_model_is_refused():
    with pytest.raises(ValueError, match="expected hook_every=1 for a compiled model, got 8"):
        _meter(torch.compile(net(), backend="eager"))


def test_a_number_of_steps_below_one_is_refused():
    with pytest.raises(ValueError, match="expected a number of steps from 1 as hook_every, got 0"):
        UtilizationMeter(net(), hook_every=0)
