from .allocator_history import tensors_peak
from .caching_allocator import Reserved, replay
from .checkpointing import Choice, checkpointed, curve, stretches_of
from .largest_batch import MOST, SMALL, BatchFit, Lines
from .live_bytes import (
    BEFORE,
    CATEGORIES,
    Footprint,
    LiveStorage,
    footprint,
    peak_bytes,
    place,
    reuse_gradients,
    unsized,
)
from .workspaces import Workspace, allowance, unforeseen

__all__ = [
    "BEFORE",
    "BatchFit",
    "CATEGORIES",
    "Choice",
    "Footprint",
    "Lines",
    "LiveStorage",
    "MOST",
    "Reserved",
    "SMALL",
    "Workspace",
    "allowance",
    "checkpointed",
    "curve",
    "footprint",
    "peak_bytes",
    "place",
    "replay",
    "reuse_gradients",
    "tensors_peak",
    "stretches_of",
    "unforeseen",
    "unsized",
]
