from .allocator_history import rows
from .caching_allocator import Reserved, replay
from .checkpointing import Choice, checkpointed, curve, stretches_of
from .cudnn_observations import WorkspaceObservation, as_allowed, observations
from .cudnn_workspaces import PASSES, allowance_bytes, convolves, with_workspaces
from .largest_batch import MOST, SMALL, BatchFit, Lines
from .live_bytes import (
    BEFORE,
    CATEGORIES,
    Footprint,
    LiveStorage,
    StepPlace,
    footprint,
    peak_bytes,
    place,
    reuse_gradients,
)
from .published import (
    ALLOCATED,
    MATERIALIZED,
    PROCESS,
    REQUESTED,
    RESERVED,
    RISEN,
    TENSORS,
    Published,
    as_measured,
    predicted_bytes,
)
from .workspaces import Workspace, allowance, unforeseen, where_there_is_room

__all__ = [
    "ALLOCATED",
    "BEFORE",
    "BatchFit",
    "CATEGORIES",
    "Choice",
    "Footprint",
    "Lines",
    "LiveStorage",
    "MATERIALIZED",
    "MOST",
    "PASSES",
    "PROCESS",
    "Published",
    "REQUESTED",
    "RESERVED",
    "RISEN",
    "Reserved",
    "SMALL",
    "StepPlace",
    "TENSORS",
    "Workspace",
    "WorkspaceObservation",
    "allowance",
    "allowance_bytes",
    "as_allowed",
    "as_measured",
    "checkpointed",
    "convolves",
    "curve",
    "footprint",
    "observations",
    "peak_bytes",
    "place",
    "predicted_bytes",
    "replay",
    "reuse_gradients",
    "rows",
    "stretches_of",
    "unforeseen",
    "where_there_is_room",
    "with_workspaces",
]
