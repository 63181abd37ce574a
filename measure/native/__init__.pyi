from .core_clock import core_clock_hz
from .kernels import IssueRate, compiled_program, issue_rate, read_rate
from .malloc import extend_heap, retain_freed_memory
from .round_trip import round_trip_s

__all__ = [
    "IssueRate",
    "compiled_program",
    "core_clock_hz",
    "extend_heap",
    "issue_rate",
    "read_rate",
    "retain_freed_memory",
    "round_trip_s",
]
