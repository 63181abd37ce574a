from .blocks import (
    Announce,
    agree,
    blocks_in_order,
    measure_blocks,
    warm_up,
)
from .ceiling_blocks import CeilingBlocks, CeilingKernel, step_time_warning
from .clocks import Clock, clock_for
from .disturbance import absent, core_state, run_wait_s
from .page_faults import page_fault_warning, process_use
from .phases import measure_phases, measure_stretch
from .profiler_ranges import DOMAIN, Mark, Ranges, unheard
from .protocols import TIMED_WORKS, Protocol
from .rank_blocks import END, BlockOrder, agreed_blocks, follow_orders, slowest_blocks
from .stopping import disturbance_warning, placement_warning, shortfall, step_time_s
from .suspension import SUSPENDED, WARNING

__all__ = [
    "Announce",
    "BlockOrder",
    "CeilingBlocks",
    "CeilingKernel",
    "Clock",
    "DOMAIN",
    "END",
    "Mark",
    "Protocol",
    "Ranges",
    "SUSPENDED",
    "TIMED_WORKS",
    "WARNING",
    "absent",
    "agreed_blocks",
    "agree",
    "blocks_in_order",
    "clock_for",
    "core_state",
    "disturbance_warning",
    "follow_orders",
    "measure_blocks",
    "measure_phases",
    "measure_stretch",
    "page_fault_warning",
    "placement_warning",
    "process_use",
    "run_wait_s",
    "shortfall",
    "slowest_blocks",
    "step_time_s",
    "step_time_warning",
    "unheard",
    "warm_up",
]
