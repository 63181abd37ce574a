from .execution_modes import step_energy_j, ways
from .fathom_groups import FATHOM, GROUPS, MOST_UNCLASSIFIED_RATIO, OPERATIONS, Grouping, figure3, figure3_groups
from .group_costs import Density, GroupCost, densities
from .heavy_tail import Tail, survival, tail
from .layer_functions import labels_of_types
from .operation_mix import Mix, cumulative, inner_steps, steps_of, types_for
from .outlier_steps import slow_steps
from .similarity import DistanceChange, Merge, centroid_linkage, distance_changes, inverted, matrix, pictures
from .stationarity import Stationarity
from .step_reconstruction import Reconstructed, reconstructed
from .summary import (
    Against,
    Launching,
    comparable_mixes,
    launching,
    linkage,
    mixes,
    steadiness,
    training_against_inference,
)
from .thread_scaling import Amdahl, Scaling, over_batch, parallelism

__all__ = [
    "Against",
    "Amdahl",
    "Density",
    "DistanceChange",
    "FATHOM",
    "GROUPS",
    "GroupCost",
    "Grouping",
    "Launching",
    "MOST_UNCLASSIFIED_RATIO",
    "Merge",
    "Mix",
    "OPERATIONS",
    "Reconstructed",
    "Scaling",
    "Stationarity",
    "Tail",
    "centroid_linkage",
    "comparable_mixes",
    "cumulative",
    "densities",
    "distance_changes",
    "figure3",
    "figure3_groups",
    "inner_steps",
    "inverted",
    "labels_of_types",
    "launching",
    "linkage",
    "matrix",
    "mixes",
    "over_batch",
    "parallelism",
    "pictures",
    "reconstructed",
    "slow_steps",
    "steadiness",
    "step_energy_j",
    "steps_of",
    "survival",
    "tail",
    "training_against_inference",
    "types_for",
    "ways",
]
