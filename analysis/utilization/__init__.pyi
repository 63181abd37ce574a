from .ceiling_doubts import disagreement, kernel, loaded
from .counter_operators import ELEMENTS, FLOP_PER_NATIVE, OPERATORS, kind_of_operator
from .denominators import Denominator, ceiling_of, datasheet
from .numerators import (
    OWN,
    PROFILED_METHODS,
    PROFILER,
    Numerator,
    TableCount,
    count_table,
    exact,
    input_dtype,
    no_less_than_known,
    of_loop,
    profiled,
    theory,
    theory_as_published,
)
from .paired_blocks import log_ratios
from .step_times import block_means_s, block_summary, whole_steps
from .utilization import HARMLESS_REASONS, Measurement, limits_seen, measurement, rows
from .work_times import blocks_of, epoch_parts, images_of, variant, works_of

__all__ = [
    "Denominator",
    "ELEMENTS",
    "FLOP_PER_NATIVE",
    "HARMLESS_REASONS",
    "Measurement",
    "Numerator",
    "OPERATORS",
    "OWN",
    "PROFILED_METHODS",
    "PROFILER",
    "TableCount",
    "block_means_s",
    "block_summary",
    "blocks_of",
    "ceiling_of",
    "count_table",
    "datasheet",
    "disagreement",
    "epoch_parts",
    "exact",
    "images_of",
    "input_dtype",
    "kernel",
    "kind_of_operator",
    "limits_seen",
    "loaded",
    "log_ratios",
    "measurement",
    "no_less_than_known",
    "of_loop",
    "profiled",
    "rows",
    "theory",
    "theory_as_published",
    "variant",
    "whole_steps",
    "works_of",
]
