from .ppopp2019_case_study import reproduced
from .results import ASSUMED, BETWEEN, NOT, PAPERS, REPRODUCED, VERDICTS, PaperCell, count

__all__ = [
    "ASSUMED",
    "BETWEEN",
    "NOT",
    "PAPERS",
    "PaperCell",
    "REPRODUCED",
    "VERDICTS",
    "count",
    "reproduced",
]
