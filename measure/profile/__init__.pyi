from .micro_benchmark import time_operations
from .model_guard import naming_faults
from .rows import in_groups, operation_rows
from .step_kinds import ModelStep, traced_on_fakes
from .step_profile import StepDescription, expect_module, profile_step, table_of
from .step_series import RecordedSteps, StepTiming
from .typed_steps import tags_of
from .unseen_operations import plain_calls
from .watch import ForwardWatch

__all__ = [
    "ModelStep",
    "RecordedSteps",
    "StepDescription",
    "StepTiming",
    "ForwardWatch",
    "expect_module",
    "in_groups",
    "naming_faults",
    "operation_rows",
    "plain_calls",
    "profile_step",
    "table_of",
    "tags_of",
    "time_operations",
    "traced_on_fakes",
]
