"""Injected fault, definition: a part of a loop, wrong items or wrong readings give no rate of the whole."""

import math
from types import SimpleNamespace

import pytest
import torch

from analysis.devices.ceilings import best
from measure.meter import step_times
from results.records.cell import Ceiling, Telemetry
from tests.measure.meter.square_layers import meter_of

WIDTH, BATCH = 8, 4
NO_ITEMS = "no items/s and J/item"


def _loop(meter, model, items, calls=None):
    """A step for each entry of items; calls: whether the model is called in it."""
    for number, each in enumerate(items):
        with meter.step(items=each):
            if calls is None or calls[number]:
                model(torch.randn(BATCH, WIDTH)).sum().backward()


def _found(items, calls=None):
    model = torch.nn.Linear(WIDTH, WIDTH)
    meter = meter_of(model)
    _loop(meter, model, items, calls)
    return meter.summary()


@pytest.mark.parametrize("items", [math.nan, math.inf, -3, "12"])
def test_items_that_are_no_amount_are_not_known(items):
    found = _found([7, items])
    assert found.items_per_s is None
    assert any(f"{NO_ITEMS}: the items of 1 of 2 steps" in reason for reason in found.warnings)
    assert found.model_flop_per_step == 2 * 2 * BATCH * WIDTH * WIDTH  # forward and the weight's gradient


def test_samples_and_what_the_caller_counts_are_not_added_up():
    found = _found([100, None, 100])
    assert found.items_per_s is None
    assert any(f"{NO_ITEMS}: items were given for 2 of 3 steps" in reason for reason in found.warnings)


@pytest.mark.parametrize(
    "joules", [(1.0, math.inf), (math.nan, 2.0), (1.0, math.nan), (2.0, 1.0), (math.inf, math.inf)]
)
def test_a_counter_that_is_no_number_gives_no_energy(joules, monkeypatch):
    readings = [Telemetry(cell_id="", attempt=0, time_s=float(at), energy_j=value) for at, value in enumerate(joules)]
    counter = SimpleNamespace(poll=lambda: readings.pop(0), close=lambda: None)
    monkeypatch.setattr(step_times, "open_device", lambda _device: counter)
    model = torch.nn.Linear(WIDTH, WIDTH)
    meter = meter_of(model, energy=True)  # the first reading; the summary takes the second
    _loop(meter, model, [4, 4])
    found = meter.summary()
    assert found.energy_per_item_j is None
    assert "no energy: the device has no energy counter that increases" in found.warnings


def _ceiling(**changed):
    row = {"session": "s0", "device": "cpu", "precision": "fp32", "unit": "fp32", "operation": "matmul", "shape": "8"}
    return Ceiling(**{**row, "flop_per_s": 1e12, "status": "ok", **changed})


@pytest.mark.parametrize("rate", [math.inf, math.nan, -1.0, 0.0])
def test_a_ceiling_without_a_rate_above_0_divides_nothing(rate):
    known = _ceiling(flop_per_s=2e9, shape="16")
    assert best([_ceiling(flop_per_s=rate), known], "fp32") is known
    model = torch.nn.Linear(WIDTH, WIDTH)
    meter = meter_of(model, ceilings=[_ceiling(flop_per_s=rate)])
    _loop(meter, model, [None])
    assert meter.summary().ceiling_utilization_ratio is None


def test_ceilings_of_another_kind_of_device_are_refused():
    with pytest.raises(ValueError, match="got those of 'cuda:0'"):
        meter_of(torch.nn.Linear(WIDTH, WIDTH), ceilings=[_ceiling(device="cuda:0")])


def test_items_of_some_steps_are_no_rate_of_all():
    found = _found([None, None, None, None], calls=[True, False, True, False])
    assert found.items_per_s is None
    assert any(reason.startswith(f"{NO_ITEMS}: the items of 2 of 4 steps are not known") for reason in found.warnings)
