"""A meter as a callback of Hugging Face's Trainer, and of trainers that derive from it (TRL's).

    trainer = Trainer(…, callbacks=[UtilizationCallback()])

A step is what the Trainer calls one: all batches whose gradients are summed, and the optimizer's step. The numbers go
where the Trainer's own go: into its log, `state.log_history` and every reporter that is on. Not claimed: a step under
DeepSpeed's engine, whose copies of the weights are not looked at.
"""

import dataclasses
from typing import Any

import torch
import transformers
from transformers import TrainerCallback

from measure.integrations.fault_guard import guarded
from measure.meter.framework_flop import FrameworkFlop, framework_row, six_nd_causes
from measure.meter.meter import MeterSummary, UtilizationMeter

LOGGED = (
    "model_flop_per_step", "model_flop_per_s", "utilization_ratio", "hfu_ratio", "ceiling_utilization_ratio",
    "step_time_s", "items_per_s", "energy_per_item_j", "goodput_ratio",
)  # fmt: skip


class UtilizationCallback(TrainerCallback):  # type: ignore[misc]
    """Logs the meter's numbers of the steps since the last log as `flopledger/…`, and of the whole run at its end.

    options: of `UtilizationMeter`. meter: the meter, once training has begun. trainer_flop: what the Trainer
    itself says at the end (`state.total_flos`: 6 × parameters without embeddings × tokens), FLOP of all steps; the
    difference from the exact count of a step, by cause, is in `result.frameworks`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.meter: UtilizationMeter | None = None
        self.result: MeterSummary | None = None
        self.has_failed = False
        self.trainer_flop: float | None = None
        self._begun = False
        self._before = 0.0, 0

    @guarded
    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module | None = None, **_rest: Any
    ) -> None:
        """Begin to measure the model as the Trainer calls it."""
        if model is not None:
            self.meter = UtilizationMeter(model, **self._options)
            self._before = float(state.total_flos), int(state.global_step)

    @guarded
    def on_step_begin(self, args: Any, state: Any, control: Any, **_rest: Any) -> None:
        if self.meter is not None:
            if state.global_step + 1 == state.max_steps:
                self.meter.observe_next()
            self.meter.begin()
            self._begun = True

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **_rest: Any) -> None:
        if self.meter is not None and self._begun:
            self.meter.update()
            self._begun = False

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_rest: Any) -> None:
        """Put the numbers beside the Trainer's own, if they are of training."""
        if self.meter is None or logs is None or "loss" not in logs:
            return
        numbers = self.meter.window().scalars()
        found = {f"flopledger/{name}": numbers[name] for name in LOGGED if name in numbers}
        logs.update(found)
        if state.log_history:
            state.log_history[-1].update(found)

    @guarded
    def on_train_end(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module | None = None, **_rest: Any
    ) -> None:
        """Sum up the whole run in `result`."""
        if self.meter is not None:
            stated = float(state.total_flos) - self._before[0]
            steps, ranks = state.global_step - self._before[1], max(1, args.world_size)
            row = _trainer_row(self.meter, model, stated / steps / ranks if steps else 0.0)
            self.result = dataclasses.replace(self.meter.summary(), frameworks=(row,))
            self.trainer_flop = float(state.total_flos) if state.total_flos else None
            self.meter.close()


def _trainer_row(meter: UtilizationMeter, model: Any, stated: float) -> FrameworkFlop:
    """What the Trainer said of a step of one process, beside the exact count."""
    name = f"transformers {transformers.__version__} Trainer"
    how = "total_flos: 6 × parameters without embeddings × tokens"
    exact = meter.module_flop()
    while hasattr(model, "module"):
        model = model.module
    parameters = model.num_parameters(exclude_embeddings=True) if hasattr(model, "num_parameters") else 0
    if not stated or not parameters:
        return FrameworkFlop(name, how, reason="the Trainer counted nothing: the model's main input was not in a batch")
    if exact is None:
        return FrameworkFlop(name, how, stated, reason="not every call of the model has a count by module")
    return framework_row(name, how, stated, exact, six_nd_causes(model, stated / (6 * parameters), exact))
