from .collective_times import collective_rates
from .context import is_balanced, ring_attention, sequence_length, sequence_part, with_positions
from .experts import own_expert_plan, plans_of, plans_of_file
from .member import GroupMember
from .meshes import rank_mesh
from .model_split import held_parameters, record_steps, split_model
from .pipeline import first_microbatch, pipeline_stage
from .rank_trace import (
    RankStep,
    gradient_buckets,
    trace_rank,
    trace_single,
)
from .real_group import RankGroup, rank_group
from .styles import check_styles

__all__ = [
    "RankGroup",
    "RankStep",
    "GroupMember",
    "check_styles",
    "collective_rates",
    "first_microbatch",
    "gradient_buckets",
    "held_parameters",
    "is_balanced",
    "own_expert_plan",
    "pipeline_stage",
    "plans_of",
    "plans_of_file",
    "rank_group",
    "rank_mesh",
    "record_steps",
    "ring_attention",
    "sequence_length",
    "sequence_part",
    "split_model",
    "trace_rank",
    "trace_single",
    "with_positions",
]
