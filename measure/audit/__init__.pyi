from .child import Question
from .isolation import Found, ask, find

__all__ = ["Found", "Question", "ask", "find"]
