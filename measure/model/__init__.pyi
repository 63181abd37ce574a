from .module_masks import mask_rules
from .module_paths import Links, ModulePaths, in_checkpoint, in_gradient_hook
from .random_state import kept_random
from .run import arguments, check_outputs, evaluating, preserve_state, summed, tensors
from .state_snapshot import Parts, modules, on_meta, parts_of, parts_on_meta, preserved_state
from .work_outside import noticed

__all__ = [
    "Links",
    "ModulePaths",
    "Parts",
    "arguments",
    "check_outputs",
    "evaluating",
    "in_checkpoint",
    "in_gradient_hook",
    "kept_random",
    "mask_rules",
    "preserve_state",
    "modules",
    "noticed",
    "on_meta",
    "parts_of",
    "parts_on_meta",
    "preserved_state",
    "summed",
    "tensors",
]
