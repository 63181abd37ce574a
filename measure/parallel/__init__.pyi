from .rank_trace import (
    RankStep,
    gradient_buckets,
    trace_rank,
    trace_single,
)
from .styles import check_styles, own_plan

__all__ = [
    "RankStep",
    "check_styles",
    "gradient_buckets",
    "own_plan",
    "trace_rank",
    "trace_single",
]
