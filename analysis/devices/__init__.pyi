from .ceilings import (
    ABOVE_SHEET,
    FAST_ALGORITHM,
    FAST_ALGORITHMS,
    ISSUE,
    READ,
    able_to_be_fast,
    best,
    impossible,
    impossible_bandwidth,
    limit_of,
)
from .device_peak import Peak, peak
from .interconnects import ACHIEVED, NODE_DEVICES, Link, between, links, within
from .memory import Memory, parse_bytes
from .peaks import STAND_IN_MARK, Device, is_stand_in, kept_row, lookup, nearest, spelling, stand_in_warning
from .precision_flags import OVERRIDES, disagreements, overriding
from .precisions import PRECISIONS, TENSOR_UNITS, Precision, unit_of
from .processors import FLOP_PER_MULTIPLY_ADD, WIDEST, Processor, VectorUnit, identify, vector_units
from .telemetry import EVENT_REASONS, Reading, energy, mean_power_w, mean_sm_clock_hz

__all__ = [
    "ABOVE_SHEET",
    "ACHIEVED",
    "Device",
    "EVENT_REASONS",
    "FAST_ALGORITHM",
    "FAST_ALGORITHMS",
    "FLOP_PER_MULTIPLY_ADD",
    "ISSUE",
    "Link",
    "Memory",
    "NODE_DEVICES",
    "OVERRIDES",
    "PRECISIONS",
    "Peak",
    "Precision",
    "Processor",
    "READ",
    "Reading",
    "STAND_IN_MARK",
    "TENSOR_UNITS",
    "VectorUnit",
    "WIDEST",
    "able_to_be_fast",
    "best",
    "between",
    "disagreements",
    "energy",
    "identify",
    "impossible",
    "impossible_bandwidth",
    "is_stand_in",
    "kept_row",
    "limit_of",
    "links",
    "lookup",
    "mean_power_w",
    "mean_sm_clock_hz",
    "nearest",
    "overriding",
    "parse_bytes",
    "peak",
    "spelling",
    "stand_in_warning",
    "unit_of",
    "vector_units",
    "within",
]
