"""The model of most tests of the meter: square linear layers, whose passes have FLOP that are counted in layers; and a
loop under a meter."""

from collections.abc import Callable
from typing import Any

import torch

from measure.meter.meter import UtilizationMeter
from measure.meter.summary import MeterSummary

WIDTH, BATCH = 32, 4
LAYER = 2 * BATCH * WIDTH * WIDTH
"""FLOP of one pass through one layer of WIDTH × WIDTH for BATCH samples."""


def net(layers: int = 3) -> torch.nn.Sequential:
    """So many layers, one after the other."""
    return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])


def samples(batch: int = BATCH) -> torch.Tensor:
    """Inputs of shape (batch, WIDTH)."""
    return torch.randn(batch, WIDTH)


def meter_of(
    model: torch.nn.Module, *, every: int | None = None, watch: bool = True, **options: Any
) -> UtilizationMeter:
    """A meter without warm-up and energy, with a peak of 1 TFLOP/s, unless the options say otherwise.

    every: in one of how many steps, in the mean, one is observed; None: as the budget says. watch: whether any is."""
    meter = UtilizationMeter(model, **{"warm_up_steps": 0, "energy": False, "peak_flop_per_s": 1e12, **options})
    if every is not None:
        meter._observations._gap, meter._observations._affordable = every, lambda _number: every
    if not watch:
        meter._observations.reason = "not watched"
    return meter


def measured(model: torch.nn.Module, step: Callable[[int], Any], steps: int = 3, **options: Any) -> MeterSummary:
    """What a meter says of a loop that runs `step`, which gets the number of each step."""
    meter = meter_of(model, **options)
    for number in range(steps):
        with meter.step():
            step(number)
    return meter.summary()
