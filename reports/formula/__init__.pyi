from .text import FormulaAnswer, Solved, measure, to_text

__all__ = [
    "FormulaAnswer",
    "Solved",
    "measure",
    "to_text",
]
