"""For Hugging Face's Trainer and its subclasses: `Trainer(callbacks=[UtilizationCallback()])`."""

from measure.meter.transformers import UtilizationCallback

__all__ = ["UtilizationCallback"]
