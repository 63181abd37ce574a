from .seq2seq import END, GO, PAD, WORDS

__all__ = [
    "END",
    "GO",
    "PAD",
    "WORDS",
]
