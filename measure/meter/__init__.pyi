from .framework_flop import FrameworkFlop, explained, six_nd_causes, stated_causes
from .meter import MeterOptions, MeterSummary, UtilizationMeter

__all__ = [
    "FrameworkFlop",
    "MeterOptions",
    "MeterSummary",
    "UtilizationMeter",
    "explained",
    "six_nd_causes",
    "stated_causes",
]
