"""The least and the predicted time of a step on a device, from a trace on fake tensors (torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.devices import PRECISIONS, Device
from analysis.predict import Machine, Prediction, Setting, StepAmounts, amounts, fitted_model, predict
from analysis.reach import IN_PARTS, BatchCost, StepBound, step_bound, step_cost
from results import Unavailable
from runners.footprint.step import StepOptions
from runners.reach import SMALL, operations_at


@dataclass(frozen=True, eq=False)
class TracedStep:
    """What a step costs at any batch. amounts: by way of running and class. is_bounded: False where it has attention in
    parts, so that the sum over its operations is no least time."""

    cost: BatchCost
    amounts: Mapping[str, StepAmounts]
    is_bounded: bool

    def bound(self, batch_size: int, device: Device) -> StepBound:
        """Its least time at a batch. Raises Unavailable or Inconsistent where it has none."""
        return step_bound(self.cost.at(batch_size), device.peaks, device.bandwidth_bytes_per_s)


def traced_step(asked: StepOptions, mode: str) -> TracedStep:
    """The step at any batch, from two. Raises Inconsistent where the batch changes the step, Unavailable for an
    operation without a rule, and what the model raises that cannot be run so."""
    low, high = (operations_at(asked, batch, mode) for batch in SMALL)
    return TracedStep(
        BatchCost(SMALL[0], step_cost(low), SMALL[1], step_cost(high)),
        amounts(low, SMALL[0], high, SMALL[1]),
        all(operation.name != IN_PARTS for operation in low),
    )


def machine_of(device: Device, precision: str) -> Machine:
    """The rates of a device in a precision. Raises Unavailable where its datasheet has none of them."""
    unit = PRECISIONS[precision].matmul_unit
    peak, bytes_per_s = device.peaks.get(unit), device.bandwidth_bytes_per_s
    if not peak or not bytes_per_s:
        raise Unavailable(f"no datasheet peak of {unit}, or no bandwidth of memory")
    return Machine(peak, bytes_per_s)


def prediction_of(step: TracedStep, batch_size: int, setting: Setting, device: Device) -> Prediction:
    """How long the step takes in a setting. Raises Unavailable where nothing like it was measured."""
    machine = machine_of(device, setting.precision)
    least_s = step.bound(batch_size, device).bound_time_s if step.is_bounded else None
    return predict(fitted_model(), step.amounts, batch_size, setting, machine, least_s)
