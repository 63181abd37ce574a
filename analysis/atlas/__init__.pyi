from .beyond_bound import explained
from .deepbench_kernels import (
    DEEPBENCH_COMMIT,
    DEEPBENCH_KERNELS,
    DEEPBENCH_REASONS,
    deepbench_bounds,
    is_deepbench,
    kept_deepbench,
    packed_deepbench,
    read_deepbench,
)
from .dlexamples_tables import is_dlexamples, read_dlexamples
from .lambda_results import is_lambda, read_lambda
from .neusight_kernels import (
    COMMIT,
    KERNELS,
    REASONS,
    against_roofline,
    faster,
    is_neusight,
    kept_kernels,
    packed_kernels,
    read_kernels,
)
from .neusight_steps import is_neusight_steps, read_neusight_steps
from .placement import REFUSED, ExpectedStep, PlacedStep, place, refusal
from .published_step import PublishedStep
from .related_steps import (
    TABLE,
    RelativeStep,
    best_of_each,
    family_of,
    on_device,
    published_steps,
    published_steps_on,
    relatives,
    same_model,
)
from .rows_without_model import is_mlperf, is_zeus, read_mlperf, read_zeus
from .timm_results import is_timm, read_timm

__all__ = [
    "COMMIT",
    "DEEPBENCH_COMMIT",
    "DEEPBENCH_KERNELS",
    "DEEPBENCH_REASONS",
    "ExpectedStep",
    "KERNELS",
    "PlacedStep",
    "PublishedStep",
    "REASONS",
    "REFUSED",
    "RelativeStep",
    "TABLE",
    "against_roofline",
    "best_of_each",
    "deepbench_bounds",
    "explained",
    "faster",
    "family_of",
    "is_deepbench",
    "is_dlexamples",
    "is_lambda",
    "is_mlperf",
    "is_neusight",
    "is_neusight_steps",
    "is_timm",
    "is_zeus",
    "kept_deepbench",
    "kept_kernels",
    "on_device",
    "packed_deepbench",
    "packed_kernels",
    "place",
    "published_steps",
    "published_steps_on",
    "read_deepbench",
    "read_dlexamples",
    "read_kernels",
    "read_lambda",
    "read_mlperf",
    "read_neusight_steps",
    "read_timm",
    "read_zeus",
    "refusal",
    "relatives",
    "same_model",
]
