from .batch_masks import (
    NOTHING,
    BatchMask,
    Masks,
    Place,
    at_place,
    batch_mask,
    has_rows_of,
    mask_names,
    mask_places,
    with_mask,
)
from .mixture import MixtureFlop, has_experts, pass_mixture, step_mixture
from .module_masks import makes_masks, mask_rules
from .module_paths import Links, ModulePaths, in_checkpoint, in_gradient_hook
from .random_state import kept_random
from .run import arguments, check_outputs, evaluating, preserve_state, summed, tensors
from .state_snapshot import Parts, modules, on_meta, parts_of, parts_on_meta, preserved_state
from .work_outside import noticed

__all__ = [
    "BatchMask",
    "Links",
    "Masks",
    "MixtureFlop",
    "ModulePaths",
    "NOTHING",
    "Parts",
    "Place",
    "arguments",
    "at_place",
    "batch_mask",
    "check_outputs",
    "evaluating",
    "has_experts",
    "has_rows_of",
    "in_checkpoint",
    "in_gradient_hook",
    "kept_random",
    "makes_masks",
    "mask_names",
    "mask_places",
    "mask_rules",
    "preserve_state",
    "modules",
    "noticed",
    "on_meta",
    "parts_of",
    "parts_on_meta",
    "pass_mixture",
    "preserved_state",
    "step_mixture",
    "summed",
    "tensors",
    "with_mask",
]
