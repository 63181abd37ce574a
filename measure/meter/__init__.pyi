from .framework_flop import FrameworkFlop, framework_row, six_nd_causes, stated_causes
from .meter import MeterOptions, MeterSummary, UtilizationMeter

__all__ = [
    "FrameworkFlop",
    "MeterOptions",
    "MeterSummary",
    "UtilizationMeter",
    "framework_row",
    "six_nd_causes",
    "stated_causes",
]
