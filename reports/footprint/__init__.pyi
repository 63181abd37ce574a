from .checkpoints import Checkpoints
from .text import FootprintAnswer, MemoryFit, checkpoints_csv, timeline_csv, to_text

__all__ = [
    "Checkpoints",
    "FootprintAnswer",
    "MemoryFit",
    "checkpoints_csv",
    "timeline_csv",
    "to_text",
]
