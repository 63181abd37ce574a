from .cells import ACROSS
from .gate import Condition, judge
from .gate_answer import fails, gate_markdown, gate_summary, gate_text
from .page import Side

__all__ = [
    "ACROSS",
    "Condition",
    "Side",
    "fails",
    "gate_markdown",
    "gate_summary",
    "gate_text",
    "judge",
]
