from .cells import ACROSS
from .page import Side

__all__ = [
    "ACROSS",
    "Side",
]
