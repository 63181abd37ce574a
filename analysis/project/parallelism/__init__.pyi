from .collectives import Group, all_reduce_s
from .step import WEIGHT_BYTES, Cluster, ParallelStep, Plan
from .swept import PredictedStep, predicted_steps
from .transformer import RECOMPUTE, Transformer

__all__ = [
    "Cluster",
    "Group",
    "ParallelStep",
    "Plan",
    "PredictedStep",
    "RECOMPUTE",
    "Transformer",
    "WEIGHT_BYTES",
    "all_reduce_s",
    "predicted_steps",
]
