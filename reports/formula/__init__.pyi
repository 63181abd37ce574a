from .text import FormulaAnswer, Growth, Solved, Varied, measure, to_text

__all__ = [
    "FormulaAnswer",
    "Growth",
    "Solved",
    "Varied",
    "measure",
    "to_text",
]
