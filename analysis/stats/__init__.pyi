from .affine import line
from .comparison import MARGIN_RATIO, OF_A_STEP, conditions, difference, holm, verdict
from .intervals import (
    SCALES,
    Ends,
    Estimate,
    Input,
    JointNormal,
    Swing,
    Uncertain,
    answers,
    between,
    exactly,
    medians,
    tornado,
)
from .paired import PairedRatio, paired_ratio
from .printed_numbers import Printed, amount, box
from .summary import MAD_TO_SIGMA, Summary, log_interval, means, median_interval, summarise, t_quantile

__all__ = [
    "Ends",
    "Estimate",
    "Input",
    "JointNormal",
    "MAD_TO_SIGMA",
    "MARGIN_RATIO",
    "OF_A_STEP",
    "PairedRatio",
    "Printed",
    "SCALES",
    "Summary",
    "Swing",
    "Uncertain",
    "amount",
    "answers",
    "between",
    "box",
    "conditions",
    "difference",
    "exactly",
    "holm",
    "line",
    "log_interval",
    "means",
    "median_interval",
    "medians",
    "paired_ratio",
    "summarise",
    "t_quantile",
    "tornado",
    "verdict",
]
