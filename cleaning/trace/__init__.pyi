from .clean import CleanedTrace
from .totals import UNKNOWN_OPERATOR, WITHOUT_COUNT, Outside, PhaseTotal
from .work_recordings import clean_recording

__all__ = [
    "CleanedTrace",
    "Outside",
    "PhaseTotal",
    "UNKNOWN_OPERATOR",
    "WITHOUT_COUNT",
    "clean_recording",
]
