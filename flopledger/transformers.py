"""For Hugging Face's Trainer and those that derive from it: `Trainer(callbacks=[UtilizationCallback()])`."""

from measure.integrations.transformers import UtilizationCallback

__all__ = ["UtilizationCallback"]
