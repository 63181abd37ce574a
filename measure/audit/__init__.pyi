from .child import Question
from .isolation import ask, version

__all__ = ["Question", "ask", "version"]
