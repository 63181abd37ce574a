"""Law, definition: backward passes after the end of their step are counted where they ran, or named."""

import warnings

import pytest
import torch

from measure.meter.step_times import PENDING_STEPS
from tests.measure.meter.square_layers import LAYER, measured, meter_of, net, samples
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

FORWARD, STEP = 3 * LAYER, 8 * LAYER  # of `net`: the first layer's input needs no gradient
LATE = "a backward pass ran after the end of its step"


def _outside(meter, model, is_outside, steps, *inputs):
    """Steps whose backward passes run in the block, or after it."""
    for step in range(steps):
        with meter.step(*inputs):
            loss = model(samples()).sum()
            if not is_outside(step):
                loss.backward()
        if is_outside(step):
            loss.backward()


@pytest.mark.parametrize("late", range(0, 2 * PENDING_STEPS + 3, 3))
def test_one_backward_pass_after_a_step_without_hooks_is_named_and_the_step_is_in_no_number(late):
    model = net()
    meter = meter_of(model)
    with pytest.warns(RuntimeWarning, match=LATE) as told:
        _outside(meter, model, late.__eq__, 2 * PENDING_STEPS + 3)
    found = meter.summary()
    assert len(told) == 1
    assert found.model_flop_per_step in (None, STEP)
    assert found.steps == 2 * PENDING_STEPS + 3 - (found.model_flop_per_step is not None)
    assert any(LATE in each for each in found.warnings)


@pytest.mark.parametrize("late", range(0, 2 * PENDING_STEPS + 3, 5))
@pytest.mark.parametrize("watch", [True, False])
def test_one_backward_pass_after_its_step_is_named_and_leaves_no_number(late, watch):
    model = net()
    meter = meter_of(model, watch=watch, every=1)
    with pytest.warns(RuntimeWarning, match=LATE) as told:
        _outside(meter, model, late.__eq__, 2 * PENDING_STEPS + 3)
    found = meter.summary()
    assert len(told) == 1
    assert (found.model_flop_per_step, found.utilization_ratio) == (None, None)
    assert found.unknown_calls >= 1
    assert any(LATE in each for each in found.warnings)


def test_the_window_in_which_it_came_has_no_number_and_the_next_one_has():
    model = net()
    meter = meter_of(model, every=1)
    _outside(meter, model, lambda _step: False, 10)
    assert meter.window().model_flop_per_step == STEP
    with pytest.warns(RuntimeWarning, match=LATE):
        _outside(meter, model, (7).__eq__, 40)  # steps with hooks
    assert meter.window().model_flop_per_step is None
    _outside(meter, model, lambda _step: False, 40)
    assert meter.window().model_flop_per_step == STEP
    assert meter.summary().model_flop_per_step is None


def test_several_outputs_and_the_steps_of_begin_and_update():
    model = torch.nn.LSTM(4, 4)
    meter = meter_of(model)
    for _ in range(PENDING_STEPS):
        meter.begin()
        output, (hidden, _cell) = model(torch.randn(3, 2, 4))
        meter.update()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            (output.sum() + hidden.sum()).backward()
    assert meter.summary().model_flop_per_step is None
    assert not told  # once is enough
    assert meter.summary().unknown_calls == PENDING_STEPS


def test_in_a_later_step_it_is_counted_where_it_ran():
    """Not watched: autograd's numbers say of no call what the backward pass of an earlier step's nodes is."""
    model, steps, losses = net(), 3 * PENDING_STEPS, []

    def step(number):
        losses.append(model(samples()).sum())
        if number:
            losses[number - 1].backward()

    found = measured(model, step, steps, watch=False)
    assert found.model_flop_per_step == (steps * STEP - (STEP - FORWARD)) / steps
    assert found.items_per_s == pytest.approx(len(samples()) / found.step_time_s)
