from .text import CharacterizeAnswer, look
from .text_mix import to_text

__all__ = [
    "CharacterizeAnswer",
    "look",
    "to_text",
]
