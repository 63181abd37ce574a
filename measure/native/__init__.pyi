from .kernels import IssueRate, compiled_program, issue_rate, read_rate

__all__ = ["IssueRate", "compiled_program", "issue_rate", "read_rate"]
