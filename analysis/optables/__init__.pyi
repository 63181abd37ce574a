from .builder import StepTable
from .edits import renumbered
from .fuse_pointwise import understand_fused

__all__ = [
    "StepTable",
    "renumbered",
    "understand_fused",
]
