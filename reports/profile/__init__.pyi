from .operations import operations_text
from .summary import conservation_lines
from .terminal import terminal_text
from .tree import aggregated_text, tree_text

__all__ = [
    "aggregated_text",
    "conservation_lines",
    "operations_text",
    "terminal_text",
    "tree_text",
]
