from .child import Question
from .isolation import AuditedPackage, ask, find

__all__ = ["AuditedPackage", "Question", "ask", "find"]
