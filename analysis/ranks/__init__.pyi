from .breakdown import breakdown_of
from .clocks import shifted
from .collectives import CollectiveTotal, match_collectives, totals_of
from .summary import RankRow, RanksReport, StepFlop, report_of
from .timelines import COLLECTIVE_COLUMNS, STEP_COLUMNS, Timeline, by_rank, length, union
from .waits import late_from, straggler_of, waits_of

__all__ = [
    "COLLECTIVE_COLUMNS",
    "CollectiveTotal",
    "RankRow",
    "RanksReport",
    "STEP_COLUMNS",
    "StepFlop",
    "Timeline",
    "breakdown_of",
    "by_rank",
    "late_from",
    "length",
    "match_collectives",
    "report_of",
    "shifted",
    "straggler_of",
    "totals_of",
    "union",
    "waits_of",
]
