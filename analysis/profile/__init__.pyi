from .advice import advise
from .fusion import fused
from .machine import IN_MEMORY, LAUNCHES, MOVES, bandwidth, launch_cost, machine_of
from .module_tree import OPTIMIZER, SIDES, Conservation, ModuleNode, conservation, tree
from .roofline import (
    BETWEEN,
    BOUNDS,
    RECOMPUTE,
    Against,
    RoofPlace,
    StepRoof,
    groups,
    main_bound,
    moved_bytes,
    places,
    step_roof,
    step_time,
    time_by_bound,
)

__all__ = [
    "Against",
    "BETWEEN",
    "BOUNDS",
    "Conservation",
    "IN_MEMORY",
    "LAUNCHES",
    "MOVES",
    "ModuleNode",
    "OPTIMIZER",
    "RECOMPUTE",
    "RoofPlace",
    "SIDES",
    "StepRoof",
    "advise",
    "bandwidth",
    "conservation",
    "fused",
    "groups",
    "launch_cost",
    "machine_of",
    "main_bound",
    "moved_bytes",
    "places",
    "step_roof",
    "step_time",
    "time_by_bound",
    "tree",
]
