from .breakdown import Breakdown, breakdown_of
from .clocks import Shift, shifted
from .collectives import CollectiveTotal, match_collectives, totals_of
from .critical_path import Segment, critical_path
from .summary import RankRow, RanksReport, StepFlop, report_of
from .timelines import COLLECTIVE_COLUMNS, STEP_COLUMNS, Timeline, by_rank, spans
from .waits import Straggler, Wait, straggler_of, waits_of

__all__ = [
    "Breakdown",
    "COLLECTIVE_COLUMNS",
    "CollectiveTotal",
    "RankRow",
    "RanksReport",
    "STEP_COLUMNS",
    "Segment",
    "Shift",
    "StepFlop",
    "Straggler",
    "Timeline",
    "Wait",
    "breakdown_of",
    "by_rank",
    "critical_path",
    "match_collectives",
    "report_of",
    "shifted",
    "spans",
    "straggler_of",
    "totals_of",
    "waits_of",
]
