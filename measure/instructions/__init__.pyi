from .callgrind import count_instructions, executions
from .decoding import arithmetic, lanes_of
from .operators import OPERATORS

__all__ = ["OPERATORS", "arithmetic", "count_instructions", "executions", "lanes_of"]
