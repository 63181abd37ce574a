"""What a profile holds a step against, measured within seconds: a short list of kernels, one size of copies, launches.

For the process that measures, before it builds a model. `runners.ceiling` looks longer and finds more; a profile takes
its ceilings.csv instead (`analysis.profile.machine`). Not claimed: the best of the device, only that of a short list.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from analysis.devices.precisions import PRECISIONS
from measure.ceiling import bandwidth, launch_overhead
from measure.ceiling.ceilings import Bench, ceilings_by_precision
from measure.ceiling.trials import MEMORY, moves
from measure.device import apply_precision, environment
from measure.timing.clocks import Clock
from results.records.samples import Ceiling

ALWAYS = "fp32"
"""Its cores run what is no product, whatever the precision."""

PARTS_OF_BUDGET = {"products": 0.6, "copies": 0.3, "launches": 0.1}
COPIES = 2
"""A copy and a triad of the smallest operands that no cache holds."""


def measure_machine(device: str, precisions: Sequence[str], clock: Clock, budget_s: float) -> list[Ceiling]:
    """Rows for `analysis.profile.machine.machine_of`: products and convolutions of these precisions and of fp32,
    copies, launches.

    What this device refuses is a row with its reason. Raises ValueError for a budget that is not above 0.
    """
    facts = environment.device_facts(device)
    names = [name for name in PRECISIONS if name in {*precisions, ALWAYS}]
    rows = ceilings_by_precision(device, names, clock, budget_s * PARTS_OF_BUDGET["products"])
    rows += copies_and_launches(device, clock, budget_s)
    threads = torch.get_num_threads() if device.startswith("cpu") else None
    return [replace(row, threads=threads, device_name=str(facts.name or "")) for row in rows]


def copies_and_launches(device: str, clock: Clock, budget_s: float) -> list[Ceiling]:
    """A copy and a triad of operands that no cache holds, and what a launch costs, in their parts of the budget."""
    memory_bytes = environment.device_facts(device).memory_bytes or 0
    blank = Ceiling(sitting="", device=device, precision="", unit="", operation="", shape="")
    with apply_precision.session(PRECISIONS[ALWAYS], device), torch.no_grad():
        bench = Bench(device, torch.float32, clock, math.inf)
        bench.deadline_s = clock.wall_s() + budget_s * PARTS_OF_BUDGET["copies"]
        planned = moves(bench.device.type, bandwidth.last_cache_bytes(device), memory_bytes)
        beyond = [move for move in planned if move.family == MEMORY][:COPIES]
        rows = bandwidth.rows(bench, blank, beyond)
        views = launch_overhead.operations(device)
        bench.deadline_s = clock.wall_s() + budget_s * PARTS_OF_BUDGET["launches"]
        rows += [launch_overhead.row(bench, blank, view, len(views) - i) for i, view in enumerate(views)]
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()
    return rows
