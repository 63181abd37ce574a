from .collective_times import collective_rates
from .member import GroupMember
from .model_split import held_parameters, record_steps, split_model
from .rank_trace import (
    RankStep,
    gradient_buckets,
    trace_rank,
    trace_single,
)
from .real_group import RankGroup, rank_group
from .styles import check_styles, own_plan

__all__ = [
    "RankGroup",
    "RankStep",
    "GroupMember",
    "check_styles",
    "collective_rates",
    "gradient_buckets",
    "held_parameters",
    "own_plan",
    "rank_group",
    "record_steps",
    "split_model",
    "trace_rank",
    "trace_single",
]
