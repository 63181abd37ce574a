from .catch_game import FRAMES
from .images import CHANNELS, begin

__all__ = [
    "CHANNELS",
    "FRAMES",
    "begin",
]
