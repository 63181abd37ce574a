from .core_clock import core_clock_hz
from .kernels import IssueRate, compiled_program, issue_rate, read_rate

__all__ = ["IssueRate", "compiled_program", "core_clock_hz", "issue_rate", "read_rate"]
