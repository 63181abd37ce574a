"""Steps without gradient hooks: what they count, and what is said when one differs."""

import contextlib
import copy
import io
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from measure.meter.meter import UtilizationMeter
from tests.measure.meter.square_layers import BATCH, LAYER, net, samples
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

FORWARD = 3 * LAYER
STEP = FORWARD + 5 * LAYER  # of `net`: three layers; the first one's input needs no gradient
EVERY = 8


def _meter(model, **options):
    return UtilizationMeter(model, **{"warm_up_steps": 0, "energy": False, "hook_every": EVERY} | options)


def _hooked(meter, model, batches, backward=lambda _step: True):
    """Steps over batches; the numbers of those with gradient hooks."""
    hooked = []
    for step, batch in enumerate(batches):
        with meter.step():
            output = model(batch)
            if output._backward_hooks is not None:
                hooked.append(step)
            if backward(step):
                output.sum().backward()
    return hooked


def test_by_default_one_of_sixteen_equal_steps_has_hooks_and_each_is_counted():
    model = net()
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False, watch=False)
    hooked = _hooked(meter, model, [samples()] * 800)
    found = meter.summary()
    assert found.steps == 800
    assert found.model_flop_per_step == STEP
    assert found.items_per_s == pytest.approx(BATCH / found.step_time_s)
    assert 800 / 16 / 2 < len(hooked) < 800 / 16 * 2
    assert len(set(map(int.__sub__, hooked[1:], hooked))) > 3  # at random distances


@pytest.mark.parametrize("every", [2, EVERY])
@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize(
    "step",
    [
        lambda model: model(samples()).sum().backward(),
        lambda model: [model(samples()).sum().backward() for _ in range(4)],
        lambda model: sum(model(samples()).sum() for _ in range(3)).backward(),
        lambda model: model(input=samples()).sum().backward(),
        lambda model: [model(samples()), model(samples()).sum().backward()],
        lambda model: model(samples(3).requires_grad_()).sum().backward(),
        lambda model: checkpoint(model, samples(), use_reentrant=False).sum().backward(),
        lambda model: model(samples()),
    ],
    ids=["plain", "accumulated", "summed", "by name", "one of two", "input gradient", "checkpoint", "forward"],
)
def test_the_number_is_that_of_a_meter_with_hooks_in_each_step(step, every, watch):
    found = []
    for hook_every in (1, every):
        model = net()
        meter = _meter(model, hook_every=hook_every, watch=watch)
        for _ in range(80):
            with meter.step():
                step(model)
        summary = meter.summary()
        found.append((summary.model_flop_per_step, summary.recompute_flop_per_step, summary.steps))
    assert found[0] == found[1]
    assert found[0][0]


def test_inputs_of_other_sizes_and_another_mode_are_seen_in_each_step():
    model = net()
    meter = _meter(model, watch=False)
    batches = [samples() if step % 3 else samples()[: BATCH // 2] for step in range(300)]
    hooked = _hooked(meter, model, batches)
    assert meter.summary().model_flop_per_step == STEP * (200 + 100 / 2) / 300
    assert set(hooked) >= set(range(0, 300, 3))  # the odd ones
    for step in range(200):
        model.train(step % 2 == 0)
        with meter.step():
            with torch.set_grad_enabled(model.training):
                loss = model(samples()).sum()
            if model.training:
                loss.backward()
    assert meter.summary().model_flop_per_step == pytest.approx((250 * STEP + 100 * (STEP + FORWARD)) / 500)


@pytest.mark.parametrize(
    ("change", "flop"),
    [
        (lambda x: x.requires_grad_(), STEP + LAYER / 2),  # and the gradient of the input
        (lambda x: x[:2], STEP * 3 / 4),
        (lambda x: x.double(), STEP),  # refused by the model: such steps are not counted; the loop goes on
        (lambda x: x.t().contiguous().t(), STEP),  # other strides, the same work
        (lambda x: torch.nn.Parameter(x, requires_grad=False), STEP),  # another type
    ],
)
def test_a_change_of_the_input_after_many_equal_steps_is_counted_as_it_is(change, flop):
    model = net()
    meter = _meter(model, watch=False)
    _hooked(meter, model, [samples()] * 60)
    for _ in range(60):
        with contextlib.suppress(RuntimeError):
            _hooked(meter, model, [change(samples())])
    assert meter.summary().model_flop_per_step == flop


def test_autocast_after_many_equal_steps_is_seen():
    model = net()
    meter = _meter(model, watch=False)
    _hooked(meter, model, [samples()] * 60)
    with torch.autocast("cpu", torch.bfloat16):
        assert _hooked(meter, model, [samples()] * 60)[:2] == [0, 1]
    assert meter.summary().model_flop_per_step == STEP


def test_a_transform_after_many_equal_steps_is_seen():
    model = net()
    meter = _meter(model, watch=False)
    _hooked(meter, model, [samples()] * 60)
    for _ in range(3):
        with meter.step():
            torch.func.grad(lambda x: model(x).sum())(samples())
    assert meter.summary().model_flop_per_step is None


@pytest.mark.parametrize(
    "other",
    [
        lambda model: model(samples()),
        lambda model: [model(samples()).sum().backward() for _ in range(2)],
        lambda model: [model(samples()).sum().backward(), model(samples(2)).sum().backward()],
        lambda model: (lambda loss: [loss.backward(retain_graph=True), loss.backward()])(model(samples()).sum()),
    ],
    ids=["no backward", "two calls", "two kinds", "two backward"],
)
def test_a_step_of_another_course_is_in_no_number_and_each_one_after_it_has_hooks(other):
    model = net()
    meter = _meter(model, watch=False)
    hooked = _hooked(meter, model, [samples()] * 40)
    assert len(hooked) < 20
    while meter._step.left < 2:
        _hooked(meter, model, [samples()])
    before = meter.summary().steps
    with meter.step():
        other(model)
    assert _hooked(meter, model, [samples()] * 40) == list(range(40))
    found = meter.summary()
    assert found.steps == before + 40
    assert found.model_flop_per_step == STEP
    assert any("1 step without gradient hooks" in each for each in found.warnings)


def test_a_step_in_which_no_call_is_seen_is_counted_by_its_inputs_or_leaves_no_number():
    model = net()
    meter = _meter(model, watch=False)
    _hooked(meter, model, [samples()] * 40)
    for _ in range(40):
        with meter.step(samples()):
            pass  # as a captured graph is replayed
    assert meter.summary().steps == 80
    assert meter.summary().model_flop_per_step == STEP
    meter.window()
    with meter.step():
        pass
    assert meter.window().model_flop_per_step is None


def test_a_course_that_the_comparison_does_not_see_is_named():
    """A backward pass to the inputs alone: no parameter has a gradient of it."""
    model = net()
    meter = _meter(model, watch=False)

    def step(more):
        batch = samples().requires_grad_()
        with meter.step():
            output = model(batch).sum()
            if more:
                torch.autograd.grad(output, batch, retain_graph=True)
            output.backward()

    for _ in range(60):
        step(False)
    with pytest.warns(RuntimeWarning, match="ran different backward passes"):
        [step(True) for _ in range(60)]
    assert any("ran different backward passes" in each for each in meter.summary().warnings)
    meter.window()
    assert step(True) is None
    assert meter.window().model_flop_per_step == STEP + LAYER + 6 * LAYER  # as counted: what is watched says otherwise


def test_a_model_that_was_frozen_or_whose_layer_was_replaced_is_looked_at_anew():
    model = net()
    meter = _meter(model, watch=False)
    _hooked(meter, model, [samples()] * 40)
    meter.window()
    for each in model[0].parameters():
        each.requires_grad_(False)
    meter.window()
    assert _hooked(meter, model, [samples()] * 40)[:2] == [0, 1]
    assert meter.window().model_flop_per_step == STEP - 2 * LAYER  # of the first layer's weights and the second's input
    model[0] = torch.nn.Linear(32, 32)
    meter.window()
    assert 2 <= len(_hooked(meter, model, [samples()] * 40)) < 20
    assert meter.window().model_flop_per_step == STEP


def test_a_layer_that_was_frozen_is_noticed_without_a_window():
    """The first layer's weight gets no gradient: that step is in no number, and those after it are counted anew."""
    model = net()
    meter = _meter(model, watch=False)
    _hooked(meter, model, [samples()] * 40)
    while meter._step.left < 2:
        _hooked(meter, model, [samples()])
    steps = meter.summary().steps
    model[0].requires_grad_(False)
    _hooked(meter, model, [samples()] * 41)
    frozen = STEP - 2 * LAYER  # of the first layer's weights and the second's input
    assert meter.summary().model_flop_per_step == pytest.approx((steps * STEP + 40 * frozen) / (steps + 40))


def test_a_step_that_failed_or_was_never_ended_is_not_counted():
    model = net()
    meter = _meter(model, watch=False)
    _hooked(meter, model, [samples()] * 40)
    for _ in range(30):
        with contextlib.suppress(KeyError), meter.step():
            raise KeyError
    assert meter.summary().steps == 40
    meter.step().__enter__()
    with pytest.warns(RuntimeWarning, match="begun inside of another one"):
        _hooked(meter, model, [samples()] * 40)
    assert meter.summary().steps == 80
    assert meter.summary().model_flop_per_step == STEP


def test_items_that_the_caller_gives_are_those_of_each_step():
    model = net()
    meter = _meter(model, watch=False)
    for step in range(60):
        with meter.step(items=step):
            model(samples()).sum().backward()
    found = meter.summary()
    assert found.items_per_s * found.step_time_s == pytest.approx(59 / 2)


def test_gradients_are_the_same_bit_for_bit_and_no_hook_is_left():
    plain, metered = net(), net()
    metered.load_state_dict(plain.state_dict())
    meter = _meter(metered)
    for _ in range(40):
        for model in (plain, metered):
            model.zero_grad()
        batch = samples()
        plain(batch).sum().backward()
        with meter.step():
            metered(batch).sum().backward()
        for one, other in zip(plain.parameters(), metered.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)
    saved = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(metered, saved)
        assert not next(copy.deepcopy(metered).parameters())._backward_hooks
    meter.close()
    assert not any(each._backward_hooks for each in metered.parameters())


def test_a_compiled_or_wholly_frozen_model_has_hooks_in_each_step():
    compiled = torch.compile(net(), backend="eager")
    meter = _meter(compiled)
    _hooked(meter, compiled, [samples()] * 40)
    assert meter.summary().model_flop_per_step == STEP
    assert not any(each._backward_hooks for each in compiled.parameters())
    frozen = net().requires_grad_(False)
    meter = _meter(frozen, watch=False)
    assert _hooked(meter, frozen, [samples().requires_grad_()] * 40) == list(range(40))
    assert meter.summary().model_flop_per_step == 2 * FORWARD


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # of Dynamo, where a graph ends
def test_a_function_that_calls_the_model_may_be_compiled():
    model = net()
    meter = _meter(model)
    call = torch.compile(lambda batch: model(batch).sum(), backend="aot_eager")
    for _ in range(40):
        with meter.step():
            call(samples()).backward()
    assert meter.summary().model_flop_per_step == STEP


def test_a_number_of_steps_below_one_is_refused():
    with pytest.raises(ValueError, match="expected a number of steps from 1 as hook_every, got 0"):
        UtilizationMeter(net(), hook_every=0)
