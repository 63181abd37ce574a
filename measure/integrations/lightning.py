"""A meter as a callback of Lightning's Trainer.

    Trainer(callbacks=[UtilizationCallback()])

A step is what lies between `on_train_batch_start` and `on_train_batch_end`; with accumulated gradients that is one
batch of several. What `training_step` calls is counted: the LightningModule itself, or modules that it holds. The
numbers go to the loggers every `log_every_n_steps` steps. Not claimed: the optimizer's step where Lightning runs the
training step inside of it (a closure): it is in the time, as it should be, and has no model FLOP.
"""

import dataclasses
from typing import Any

import lightning
from lightning.pytorch import Callback

from measure.integrations.fault_guard import guarded
from measure.meter.framework_flop import FrameworkFlop, framework_row, stated_causes
from measure.meter.meter import MeterSummary, UtilizationMeter


class UtilizationCallback(Callback):  # type: ignore[misc]
    """Logs the meter's numbers of the steps since the last log as `flopledger/…`.

    options: of `UtilizationMeter`. meter: the meter, once training has begun. result: of all steps, once it has ended.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.meter: UtilizationMeter | None = None
        self.result: MeterSummary | None = None
        self.has_failed = False
        self._begun = False

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to measure."""
        options = {"device": pl_module.device, "children": True} | self._options
        self.meter = UtilizationMeter(pl_module, **options)

    @guarded
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.meter is not None:
            ends = trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs
            if ends or trainer.global_step + 1 == trainer.max_steps:
                self.meter.observe_next()
            self.meter.begin()
            self._begun = True

    @guarded
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.meter is None or not self._begun:
            return
        self.meter.update()
        self._begun = False
        if trainer.global_step and trainer.global_step % trainer.log_every_n_steps == 0:
            numbers = self.meter.window().scalars("flopledger/")
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Sum up the whole run in `result`."""
        if self.meter is not None:
            row = _stated_row(self.meter, pl_module)
            self.result = dataclasses.replace(self.meter.summary(), frameworks=(row,))
            self.meter.close()


def _stated_row(meter: UtilizationMeter, module: Any) -> FrameworkFlop:
    """What ThroughputMonitor divides by: the module's own `flops_per_batch`, beside the exact count of a batch.

    Here a step of the meter is a batch.
    """
    name, how = f"lightning {lightning.__version__} ThroughputMonitor", "the module's flops_per_batch"
    stated = getattr(module, "flops_per_batch", None)
    if stated is None:
        return FrameworkFlop(name, how, reason="the module states no flops_per_batch: ThroughputMonitor gives no FLOP")
    exact = meter.module_flop()
    if exact is None:
        return FrameworkFlop(name, how, float(stated), reason="not every call of the model has a count by module")
    return framework_row(
        name, how, float(stated), exact, stated_causes(float(stated), exact, meter.flop_counter_flop())
    )
