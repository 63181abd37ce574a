from .affine import line
from .comparison import ALARM_RATIO, MARGIN_RATIO, OF_A_STEP, conditions, difference, holm, interval_at, verdict
from .intervals import Ends, Estimate, Input, Uncertain, answers, between
from .printed_numbers import Printed, amount, box
from .summary import (
    INTERVAL_RULES,
    LAG1,
    LAG1_RAISED,
    MAD_TO_SIGMA,
    Summary,
    geometric_mean,
    log_interval,
    means,
    median_interval,
    summarise,
    t_quantile,
)

__all__ = [
    "ALARM_RATIO",
    "Ends",
    "Estimate",
    "INTERVAL_RULES",
    "Input",
    "LAG1",
    "LAG1_RAISED",
    "MAD_TO_SIGMA",
    "MARGIN_RATIO",
    "OF_A_STEP",
    "Printed",
    "Summary",
    "Uncertain",
    "amount",
    "answers",
    "between",
    "box",
    "conditions",
    "difference",
    "geometric_mean",
    "holm",
    "interval_at",
    "line",
    "log_interval",
    "means",
    "median_interval",
    "summarise",
    "t_quantile",
    "verdict",
]
