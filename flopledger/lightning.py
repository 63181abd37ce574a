"""For Lightning: `Trainer(callbacks=[UtilizationCallback()])`."""

from measure.integrations.lightning import UtilizationCallback

__all__ = ["UtilizationCallback"]
