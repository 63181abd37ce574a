"""Definition, law, injected fault: what the meter counts of real loops, which never suffer from it."""

import copy
import math
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from measure.ceiling import trials
from measure.meter import calls, step_times
from measure.meter.meter import MeterOptions, UtilizationMeter
from measure.meter.step_times import StepBlock, Stretch
from results.records.cell import Telemetry
from tests.measure.meter.square_layers import BATCH, LAYER, measured, meter_of, net, samples
from tests.support.nets.small_steps import Calls
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file


def trained(model, steps=3, **options):
    return measured(model, lambda _number: model(samples()).sum().backward(), steps, **options)


def test_a_step_is_one_forward_and_the_backward_pass_that_autograd_runs():
    found = trained(net())
    assert found.model_flop_per_step == 3 * LAYER + 5 * LAYER  # the first layer's input needs no gradient
    assert (found.steps, found.recompute_flop_per_step, found.unknown_calls, found.units) == (3, 0, 0, ("fp32",))


class _Answer(OrderedDict):
    """Values by name, as transformers' ModelOutput."""


@dataclass
class _Fields:
    loss: torch.Tensor
    scores: list[torch.Tensor]


@pytest.mark.parametrize("kind", ["mapping", "dataclass"])
@pytest.mark.parametrize("used", ["loss", "scores", "both"])
def test_a_backward_pass_begins_at_any_output_that_the_loop_uses(kind, used):
    """TRL leaves the loss that its model gives, and makes another from what stands beside it."""

    def forward(m, x):
        scores = m.body(x)
        loss = scores.square().mean()
        return _Answer(loss=loss, scores=[scores]) if kind == "mapping" else _Fields(loss, [scores])

    model = Calls(forward, body=net())

    def step(_number):
        out = model(samples())
        values = out if kind == "mapping" else vars(out)
        loss = values["loss"] if used != "scores" else 0
        (loss + (values["scores"][0].sum() if used != "loss" else 0)).backward()

    assert measured(model, step).model_flop_per_step == 8 * LAYER


def test_evaluation_between_steps_is_time_outside_and_no_work():
    model = net()
    clock = iter(range(100))
    meter = meter_of(model)
    meter._step.mark = lambda: float(next(clock))  # begin 0, end 1, begin 2, end 3, …
    for _ in range(5):
        with meter.step():
            model(samples()).sum().backward()
        with torch.no_grad():
            model(samples(9))
    found = meter.summary()
    assert found.model_flop_per_step == 8 * LAYER
    assert found.step_time_s == 1
    # five steps of 1 s, four times 1 s between them, less what counting took of the first one
    assert 5 / 9 <= found.goodput_ratio <= 5 / (9 - found.counting_s) + 1e-9


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_the_whole_model_is_recomputation(reentrant):
    model, x = net(), samples().requires_grad_()
    found = measured(model, lambda _number: checkpoint(model, x, use_reentrant=reentrant).sum().backward())
    assert found.model_flop_per_step == (3 + 6) * LAYER
    assert found.recompute_flop_per_step == (3 if reentrant else 2) * LAYER  # or it stops where it has all it needs


def test_under_autocast_the_unit_is_that_of_its_dtype_wherever_it_is_entered():
    def cast(call, x):
        with torch.autocast("cpu", torch.bfloat16):
            return call(x).float()

    inside, plain = Calls(lambda m, x: cast(m.body, x), body=net()), net()
    for found in (trained(inside), measured(plain, lambda _number: cast(plain, samples()).sum().backward())):
        assert (found.units, found.model_flop_per_step) == (("bf16",), 8 * LAYER)


def test_work_on_two_units_is_divided_by_both_peaks():
    half = torch.bfloat16
    model = Calls(lambda m, x: m.high(m.low(x.to(half)).float()), low=net(1).to(half), high=net(1))
    meter = meter_of(model)
    object.__setattr__(meter._loop_device.peak, "peak_by_unit", {"bf16": 4e12, "fp32": 1e12})
    with meter.step():
        model(samples()).sum().backward()
    found = meter.summary()
    low, high = 2 * LAYER, 3 * LAYER  # forward and weights; forward, weights and input
    assert found.units == ("bf16", "fp32")
    assert found.peak_flop_per_s == pytest.approx((low + high) / (low / 4e12 + high / 1e12))
    ratio = found.utilization_ratio * found.peak_flop_per_s / 1e12  # the same rate over the peak of fp32, the most
    assert (found.single_peak_unit, found.single_peak_flop_per_s) == ("fp32", 1e12)
    assert found.single_peak_utilization_ratio == pytest.approx(ratio)
    assert "of one unit" in str(found)


def test_a_step_that_replays_a_graph_is_one_pass_of_its_inputs():
    meter = meter_of(net())
    with meter.step(samples()):
        pass  # where a captured graph is replayed no Python code of the model runs
    assert meter.summary().model_flop_per_step == 8 * LAYER


def test_steps_whose_work_was_not_seen_leave_no_utilization_of_the_others():
    """Three steps run the model, two replay what they captured without saying of which inputs: 3 of 5 steps' FLOP over
    the time of all 5 would be no utilization."""
    model = net()
    found = measured(model, lambda number: number < 3 and model(samples()).sum().backward(), 5)
    assert (found.model_flop_per_step, found.model_flop_per_s, found.utilization_ratio) == (None, None, None)
    assert (found.at_least_flop_per_step, found.unknown_calls) == (3 * 8 * LAYER / 5, 2)
    assert any("was seen in 2 of 5 steps" in warning for warning in found.warnings)


def test_an_unknown_operation_makes_the_total_absent_and_says_which():
    @torch.library.custom_op("meter_test::product", mutates_args=())
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    product.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))

    found = trained(Calls(lambda m, x: product(m.body(x).detach(), m.body[0].weight.detach()) + m.body(x), body=net(2)))
    assert (found.model_flop_per_step, found.utilization_ratio, found.model_flop_per_s) == (None, None, None)
    assert found.unknown_calls == 3  # one a step
    assert found.at_least_flop_per_step == (2 + 2 + 3) * LAYER
    line = 'flopledger.register("meter_test::product", lambda *inputs, out: FLOP)'
    assert f"no rule for meter_test.product; one is given by {line}" in found.warnings


def test_a_model_whose_copies_have_parameters_of_their_own_is_counted_itself():
    """Keras's models are such: what ran on such a copy would have no backward pass of the model's own parameters."""

    class Rebuilt(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net(2)

        def forward(self, x):
            for layer in self.body:  # moves inputs to where the weights are, as Keras does
                x = torch.empty_like(x, device=layer.weight.device) if x.is_meta else x
                x = layer(x)
            return x

        def __deepcopy__(self, _memo):
            return Rebuilt()

    assert trained(Rebuilt()).model_flop_per_step == (2 + 3) * LAYER


def test_a_step_with_an_exception_is_dropped_and_the_exception_is_the_callers():
    model = net()
    meter = meter_of(model)

    def failing():
        with meter.step():
            model(samples())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()
    with meter.step():
        model(samples()).sum().backward()
    found = meter.summary()
    assert (found.steps, found.model_flop_per_step) == (1, 8 * LAYER)


def test_a_model_is_saved_and_copied_under_the_meter_without_it_and_only_itself_is_measured(tmp_path):
    """What a colleague without flopledger reads: no name of ours stands in the file."""
    model = net()
    meter = meter_of(model)
    torch.save(model, tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as archive:
        names = next(archive.read(each) for each in archive.namelist() if each.endswith("data.pkl"))
    assert [name in names for name in (b"nullcontext", b"measure", b"flopledger")] == [True, False, False]
    x = samples()
    with meter.step():
        out = model(x)
        for each in (copy.deepcopy(model), torch.load(tmp_path / "whole.pt", weights_only=False)):
            assert torch.equal(each(x), out)
        out.sum().backward()
    assert meter.summary().model_flop_per_step == 8 * LAYER


OPTION = r"UtilizationMeter has no option 'peak_flops'; the nearest option is 'peak_flop_per_s'"


def test_options_come_in_a_dataclass_or_as_keywords_and_an_unknown_one_names_the_nearest():
    model = net()
    chosen = MeterOptions(warm_up_steps=1, energy=False, peak_flop_per_s=2e12)
    meter = UtilizationMeter(model, chosen, peak_flop_per_s=1e12)
    for _ in range(3):
        with meter.step():
            model(samples()).sum().backward()
    found = meter.summary()
    assert (found.steps, found.peak_flop_per_s) == (2, 1e12), "without the one that warms up"
    with pytest.raises(TypeError, match=OPTION):
        UtilizationMeter(model, peak_flops=1e12)


def test_begin_and_update_are_the_context_in_two_calls():
    model = net()
    meter = meter_of(model)
    clock = iter(range(100))
    meter._step.mark = lambda: float(next(clock))
    for _ in range(3):
        meter.begin()
        model(samples()).sum().backward()
        meter.update(items=7)
    found = meter.summary()
    assert (found.steps, found.model_flop_per_step, found.step_time_s) == (3, 8 * LAYER, 1)
    assert found.items_per_s == 7
    assert found.goodput_ratio is not None


def test_an_update_without_a_begin_is_named():
    meter = meter_of(net())
    meter.begin()
    meter.update()
    with pytest.warns(RuntimeWarning, match=r"update\(\) came without begin\(\)"):
        meter.update()


def test_a_cpu_has_no_peak_and_no_default():
    found = trained(net(), peak_flop_per_s=None)
    assert found.utilization_ratio is None
    assert found.model_flop_per_s > 0
    assert any("no datasheet peak" in warning for warning in found.warnings)
    assert "utilization_ratio" not in found.scalars()
    assert found.scalars("m/")["m/steps"] == 3


def test_the_first_summary_on_a_cpu_measures_its_peak(monkeypatch):
    monkeypatch.setattr(trials, "OWN_PEAK_S", 0.5)
    model = net()
    meter = meter_of(model, peak_flop_per_s=None)
    with meter.step():
        model(samples()).sum().backward()
    found = meter.summary()
    assert found.ceiling_utilization_ratio == found.model_flop_per_s / found.ceiling_flop_per_s
    assert str(found).startswith("utilization ")
    assert "measured here" in str(found).splitlines()[0]
    assert meter.summary().ceiling_flop_per_s == found.ceiling_flop_per_s, "once"
    assert trained(net()).ceiling_flop_per_s is None, "not where a peak is given"


@pytest.mark.parametrize(
    ("passes", "every", "said"),
    [
        (1, 2, ["4 of 8 steps wrote no weight: they are micro-batches of an accumulation"]),
        (2, 1, ["a step has 2 backward passes of the model: its numbers are of all of them"]),
        (1, 1, []),
    ],
)
def test_micro_batches_are_noticed(passes, every, said):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(number):
        for _ in range(passes):
            model(samples()).sum().backward()
        if number % every == every - 1:
            optimizer.step()

    assert [warning.partition(";")[0] for warning in measured(model, step, 8).warnings] == said


BAD = {
    "model": ({"model": 3}, "expected the module that the loop calls, got int"),
    "models": ({"model": [3]}, "got list; make a meter for each of several modules"),
    "warm-up": ({"warm_up_steps": -1}, "expected a number of steps from 0 as warm_up_steps, got -1"),
    "unit": ({"unit": "fp31"}, "as unit, got 'fp31'"),
    "peak": ({"peak_flop_per_s": math.nan}, "expected FLOP/s above 0 as peak_flop_per_s, got nan"),
    "text": ({"peak_flop_per_s": "1e12"}, "expected FLOP/s above 0 as peak_flop_per_s, got '1e12'"),
    "device": ({"device": "gpu"}, "expected a device such as cpu, cuda or cuda:1, got 'gpu'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_get_one_line(case):
    options, message = BAD[case]
    with pytest.raises(ValueError, match=message) as fault:
        UtilizationMeter(**({"model": net()} | options))
    assert "\n" not in str(fault.value)


# --- a loop that calls the parts of a model ---


@pytest.mark.parametrize(
    ("call", "layers"),
    [
        (lambda m, x: m.head(m.encoder(x)), 1 + 1 + 1 + 2),
        (lambda m, x: m(x), 1 + 1 + 1 + 2),
        (lambda m, x: m(x) + m.head(x), 5 + 2),  # of a part beside the model once more
    ],
)
def test_children_that_are_called_by_themselves_count_as_the_model_does(call, layers):
    model = Calls(lambda m, x: m.head(m.encoder(x)), encoder=net(1), head=net(1))
    found = measured(model, lambda _number: call(model, samples()).sum().backward(), children=True)
    assert found.model_flop_per_step == layers * LAYER


def test_rates_are_the_flop_over_the_time_and_the_peak():
    found = trained(net())
    assert found.model_flop_per_s == pytest.approx(found.model_flop_per_step / found.step_time_s)
    assert found.utilization_ratio == pytest.approx(found.model_flop_per_s / 1e12)
    assert found.hfu_ratio == found.utilization_ratio
    assert found.single_peak_flop_per_s is None  # of one unit
    assert found.utilization_low_ratio < found.utilization_ratio < found.utilization_high_ratio
    assert found.items_per_s == pytest.approx(BATCH / found.step_time_s)


def test_memory_is_flat_and_the_mean_stays_exact():
    blocks = Stretch()
    key = calls.CallKey("", (), None, 0)
    for number in range(5000):
        blocks.add(StepBlock(1, float(number), 0.5, 2, passes={(key, "backward"): 1}))
    assert len(blocks.blocks) <= 512
    assert sum(block.steps for block in blocks.blocks) == 5000
    assert sum(block.time_s for block in blocks.blocks) == sum(range(5000))
    assert sum(block.passes[key, "backward"] for block in blocks.blocks) == 5000
    assert len({block.steps for block in blocks.blocks[:-1]}) == 1


def test_energy_stays_what_it_was_when_the_meter_was_closed(monkeypatch):
    readings = iter(
        Telemetry(cell_id="", attempt=0, time_s=second, energy_j=50.0 * second) for second in (0.0, 2.0, 4.0)
    )
    telemetry = SimpleNamespace(poll=lambda: next(readings), close=lambda: None)
    monkeypatch.setattr(step_times, "open_device", lambda _device: telemetry)
    model = net()
    meter = meter_of(model, warm_up_steps=1, energy=True)
    for _ in range(3):
        with meter.step():
            model(samples()).sum().backward()
    before = meter.summary()
    meter.close()
    after = meter.summary()
    assert after.steps == before.steps == 2
    # 50 W from the first reading to the last one, at closing
    assert after.energy_per_item_j == before.energy_per_item_j
    assert after.energy_per_item_j == pytest.approx(50 / after.items_per_s / after.goodput_ratio, rel=1e-6)
    assert not model._forward_hooks


def test_the_model_that_the_loop_does_not_call_is_named():
    model = net()
    found = measured(net(), lambda _number: model(samples()).sum().backward())
    assert found.model_flop_per_step is None
    assert any("does the loop call this model" in warning for warning in found.warnings)


def test_a_forward_pass_without_a_backward_pass_counts_as_such():
    model = net()

    def step(_number):
        model(samples())  # its gradient is never asked for
        with torch.no_grad():
            model(samples())
        model(samples()).sum().backward()

    assert measured(model, step).model_flop_per_step == (3 + 3 + 8) * LAYER


def test_an_output_without_a_tensor_leaves_no_number():
    """Its backward pass cannot be seen: forward passes alone would be a third of the step, and look like all of it."""
    model = Calls(lambda m, x: setattr(m, "loss", m.body(x).sum()), body=net())

    def step(_number):
        model(samples())
        model.loss.backward()

    found = measured(model, step, loss_of=lambda _output: model.loss)
    assert found.model_flop_per_step is None
    assert any("its backward pass is not seen" in warning for warning in found.warnings)
