from .kernels import IssueRate, compiled, issue_rate, read_rate

__all__ = ["IssueRate", "compiled", "issue_rate", "read_rate"]
