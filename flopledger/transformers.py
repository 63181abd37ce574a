"""Meters the steps of Hugging Face's Trainer, and of trainers that derive from it (TRL's), as a callback.

    trainer = Trainer(…, callbacks=[UtilizationCallback()])

The callback measures step times, FLOP and utilization. A step is the Trainer's own: all batches whose gradients are
summed, and the optimizer's step. The numbers go into the Trainer's log, `state.log_history`, and to every reporter that
is on. Numbers under DeepSpeed's engine may be wrong, since its copies of the weights are not observed.
"""

from typing import Any

import torch
from transformers import TrainerCallback

from measure.meter.loggers import MeterCallback, guarded
from measure.meter.meter import UtilizationMeter

LOGGED = (
    "model_flop_per_step", "model_flop_per_s", "utilization_ratio", "hfu_ratio", "ceiling_utilization_ratio",
    "step_time_s", "items_per_s", "energy_per_item_j", "goodput_ratio",
)  # fmt: skip


class UtilizationCallback(MeterCallback, TrainerCallback):  # type: ignore[misc]
    """Logs the meter's numbers of the steps since the last log as `flopledger/…`, and those of the whole run at its
    end.

    options: those of `UtilizationMeter`. meter: the meter, once training has begun. result: the summary of all steps,
    once training has ended.
    """

    @guarded
    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module | None = None, **_rest: Any
    ) -> None:
        """Begin to measure the model as the Trainer calls it."""
        if model is not None:
            self.meter = UtilizationMeter(model, **self._options)

    @guarded
    def on_step_begin(self, args: Any, state: Any, control: Any, **_rest: Any) -> None:
        self._begin(state.global_step + 1 == state.max_steps)

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **_rest: Any) -> None:
        self._end()

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_rest: Any) -> None:
        """Add the numbers to the Trainer's own, if those are of training."""
        if self.meter is None or logs is None or "loss" not in logs:
            return
        numbers = self.meter.window().scalars()
        logged = {f"flopledger/{name}": numbers[name] for name in LOGGED if name in numbers}
        logs.update(logged)
        if state.log_history:
            state.log_history[-1].update(logged)

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **_rest: Any) -> None:
        """Sum up the whole run in `result`."""
        self._finish()
