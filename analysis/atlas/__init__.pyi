from .beyond_bound import explained
from .published_step import PublishedStep
from .related_steps import TABLE, RelativeStep, best_of_each, on_device, published_steps, relatives, same_model
from .timm_results import is_timm, read_timm

__all__ = [
    "PublishedStep",
    "RelativeStep",
    "TABLE",
    "explained",
    "is_timm",
    "on_device",
    "published_steps",
    "best_of_each",
    "read_timm",
    "relatives",
    "same_model",
]
