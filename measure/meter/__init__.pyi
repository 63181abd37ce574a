from .meter import MeterOptions, MeterSummary, UtilizationMeter

__all__ = [
    "MeterOptions",
    "MeterSummary",
    "UtilizationMeter",
]
