from .collective_times import collective_rates
from .model_split import held_parameters, record_steps, split_model
from .rank_trace import (
    RankStep,
    gradient_buckets,
    trace_rank,
    trace_single,
)
from .real_group import RankGroup, rank_group
from .seat import Seat
from .styles import check_styles, own_plan

__all__ = [
    "RankGroup",
    "RankStep",
    "Seat",
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
