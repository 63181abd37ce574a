"""For Lightning: `Trainer(callbacks=[UtilizationCallback()])`."""

from measure.meter.lightning import UtilizationCallback

__all__ = ["UtilizationCallback"]
