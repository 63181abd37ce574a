from .catalogue import COUNTERS, faults_of
from .fault import Fault, put_to
from .page import value
from .running import STATUSES, Outcome, run

__all__ = [
    "COUNTERS",
    "Fault",
    "Outcome",
    "STATUSES",
    "faults_of",
    "put_to",
    "run",
    "value",
]
