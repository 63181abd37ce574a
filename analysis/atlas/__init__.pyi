from .related_steps import TABLE, Reached, on_device, published_steps, reached, relatives, same_model
from .timm_results import is_timm, read_timm

__all__ = [
    "Reached",
    "TABLE",
    "is_timm",
    "on_device",
    "published_steps",
    "reached",
    "read_timm",
    "relatives",
    "same_model",
]
