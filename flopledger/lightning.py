"""Meters the steps of Lightning's Trainer, as a callback.

    Trainer(callbacks=[UtilizationCallback()])

The callback measures step times, FLOP and utilization. A step is the time between `on_train_batch_start` and
`on_train_batch_end`; with accumulated gradients it is one of the accumulated batches. The calls that `training_step`
makes are counted: those of the LightningModule itself, or of modules in it. The numbers go to the loggers every
`log_every_n_steps` steps of the optimizer. If Lightning runs the training step inside the optimizer's step (a closure),
the optimizer's own model FLOP are not counted. The optimizer's time is included.
"""

from typing import Any

from lightning.pytorch import Callback

from measure.meter.loggers import MeterCallback, guarded
from measure.meter.meter import UtilizationMeter


class UtilizationCallback(MeterCallback, Callback):  # type: ignore[misc]
    """Logs the meter's numbers of the steps since the last log as `flopledger/…`.

    options: those of `UtilizationMeter`. meter: the meter, once training has begun. result: the summary of all steps,
    once training has ended.
    """

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to measure."""
        self._logged_step = trainer.global_step
        options = {"device": pl_module.device, "children": True} | self._options
        self.meter = UtilizationMeter(pl_module, **options)

    @guarded
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        ends = trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs
        self._begin(ends or trainer.global_step + 1 == trainer.max_steps)

    @guarded
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._end()
        step = trainer.global_step
        if self.meter is not None and step > self._logged_step and step % trainer.log_every_n_steps == 0:
            self._logged_step = step  # with accumulated gradients several batches end at one step
            numbers = self.meter.window().scalars("flopledger/")
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=step)

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Put the summary of the whole run into `result`."""
        self._finish()
