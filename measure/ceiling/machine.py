"""Measures a device's memory bandwidth and the time to start an operation, and returns `Ceiling` rows.

`measure_machine` takes a device, precisions and a budget in seconds, and also times products.
`analysis.roofline.machine_of` makes a roofline's `Machine` of the rows. `plan`, `copies_and_views` and `timed` serve
the longer search of `runners.ceiling`. A copy (b = a) moves two operands, and a triad (a = b + s · c) three. A cache
line that a processor fetches before writing it is not counted. Copies within a cache are timed many in a row. `launch`
is the time of an operation on one element on the device, or on the host where the host is slower. `call` is the time in
which torch submits such an operation, or on a CPU runs it. Not claimed: the rate of the memory's interface; a kernel's
cost in a CUDA graph; the higher cost under autograd or modules.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.ceilings import Bench, Call, bench_of, ceilings_by_precision, with_times
from measure.ceiling.trials import CACHE, ESSENTIAL, FP8, MEMORY, Move, Trial, moves, sweep
from measure.device import environment
from measure.timing.clocks import clock_for
from results.records.cell import Ceiling

BLOCK_BYTES = 1 << 28
"""Bytes that calls within a cache move together, so that their time is far above a clock's tick."""

PATTERN = 1 << 18  # random numbers, after which operands repeat
SCALE = 1.5  # s of a triad

CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_cache_bytes(device: str, caches: Path = CPU_CACHES) -> int | None:
    """Return the bytes of the device's last cache; None where it is unknown."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(torch.device(device)).L2_cache_size) or None
    texts = [file.read_text().strip() for file in sorted(caches.glob("index*/size"))]  # such as "32768K"
    sizes = [int(text[:-1]) * _SUFFIXES[text[-1]] if text[-1:] in _SUFFIXES else int(text) for text in texts]
    return max(sizes, default=None)


def move_row(bench: Bench, blank: Ceiling, move: Move, trials_left: int) -> Ceiling:
    """Return `blank` with the rate of one copy or triad, in its share of the time that the bench has left."""
    blank = replace(blank, operation=move.operation, shape=move.shape, family=move.family)
    in_a_row = max(1, BLOCK_BYTES // move.moved_bytes) if move.family == CACHE else 1

    def measure_move(until_s: float) -> Ceiling:
        call = _prepared(bench.device, move)
        times_s = bench.call_times_s(lambda: [call() for _ in range(in_a_row)], until_s, cold=move.family != CACHE)
        operation_s = [time_s / in_a_row for time_s in times_s]
        rate = move.moved_bytes / median(operation_s)
        return with_times(replace(blank, moved_bytes=move.moved_bytes, bytes_per_s=rate), operation_s)

    return bench.guarded(blank, trials_left, measure_move)


def _prepared(device: torch.device, move: Move) -> Call:
    """Return the call, with operands made beforehand: random numbers that repeat after a MiB."""
    pattern = torch.randn(min(PATTERN, move.elements), generator=torch.Generator().manual_seed(0)).to(device)
    source = pattern.repeat(-(-move.elements // len(pattern)))[: move.elements]
    target = source.clone()
    if move.operation == "copy":
        return lambda: target.copy_(source)
    other = source.clone()
    return lambda: torch.add(source, other, alpha=SCALE, out=target)


IN_A_ROW = 500
"""Calls timed together; fewer than a CUDA stream takes before the host has to wait."""

MOST_BLOCKS = 20

LAUNCH, CALL = "launch", "call"


def launch_row(bench: Bench, blank: Ceiling, operation: str, trials_left: int) -> Ceiling:
    """Return `blank` with the time of one launch or call, in its share of the time that the bench has left."""
    blank = replace(blank, operation=operation, shape=f"{IN_A_ROW} times add_ on one element")

    def measure_launches(until_s: float) -> Ceiling:
        x = torch.ones(1, device=bench.device)

        def calls() -> None:
            for _ in range(IN_A_ROW):
                x.add_(1.0)

        times_s = (
            bench.call_times_s(calls, until_s, cold=False)
            if operation == LAUNCH
            else _host_times_s(bench, calls, until_s)
        )
        return with_times(blank, [time_s / IN_A_ROW for time_s in times_s])

    return bench.guarded(blank, trials_left, measure_launches)


def _host_times_s(bench: Bench, calls: Callable[[], None], until_s: float) -> list[float]:
    """Return the seconds in which the host submits the calls, of each block."""
    calls()
    bench.clock.synchronize()
    times_s: list[float] = []
    while not times_s or (len(times_s) < MOST_BLOCKS and bench.clock.wall_s() + times_s[-1] < until_s):
        begun_s = bench.clock.wall_s()
        calls()
        times_s.append(bench.clock.wall_s() - begun_s)
        bench.clock.synchronize()
    return times_s


ALWAYS = "fp32"
"""Precision whose cores run all that is not a product, whatever the precision of the step."""

PARTS_OF_BUDGET = {"products": 0.6, "copies": 0.3, "launches": 0.1}
COPIES = 2
"""A copy and a triad of the smallest operands that no cache holds."""


def measure_machine(device: str, precisions: Sequence[str], budget_s: float) -> list[Ceiling]:
    """Return rows for `analysis.roofline.machine_of`: products and convolutions of these precisions and of fp32,
    copies, launches.

    A precision that this device refuses has a row with its reason. Raises ValueError for a budget that is not above 0.
    """
    facts = environment.device_facts(device)
    names = [name for name in PRECISIONS if name in {*precisions, ALWAYS}]
    rows = ceilings_by_precision(device, names, clock_for(device), budget_s * PARTS_OF_BUDGET["products"])
    rows += copies_and_launches(device, budget_s)
    threads = torch.get_num_threads() if device.startswith("cpu") else None
    return [replace(row, threads=threads, device_name=str(facts["name"] or "")) for row in rows]


def copies_and_launches(device: str, budget_s: float) -> list[Ceiling]:
    """Return rows of a copy and a triad of operands that no cache holds, and of a launch (on a GPU) and a call, each
    within its part of the budget."""
    copies, views = copies_and_views(device)
    beyond = [move for move in copies if move.family == MEMORY][:COPIES]
    blank = Ceiling(session="", device=device, precision="", unit="", operation="", shape="")
    with bench_of(device, PRECISIONS[ALWAYS], None, budget_s * PARTS_OF_BUDGET["copies"]) as bench:
        rows = [move_row(bench, blank, move, len(beyond) - i) for i, move in enumerate(beyond)]
        bench.deadline_s = bench.clock.wall_s() + budget_s * PARTS_OF_BUDGET["launches"]
        rows += [launch_row(bench, blank, view, len(views) - i) for i, view in enumerate(views)]
    return rows


PROBE_S = 60.0


def plan(blank: Ceiling) -> list[Trial]:
    """Return products and convolutions to try in the blank's precision, the likeliest to be best first.

    In amp-bf16 a device with fp8 units also gets one product in fp8. Both libraries have started when it returns.
    Raises Unavailable for a precision that the device lacks, ValueError if its flags cannot be set.
    """
    with bench_of(blank.device, PRECISIONS[blank.precision], blank.threads, PROBE_S) as bench:
        trials = sweep(bench.device.type, bench.probe())
        is_cuda = bench.device.type == "cuda"
        if blank.precision == "amp-bf16" and is_cuda and torch.cuda.get_device_capability(bench.device) >= (8, 9):
            trials.insert(ESSENTIAL, replace(trials[0], unit=FP8))
        return trials


def copies_and_views(device: str) -> tuple[list[Move], tuple[str, ...]]:
    """Return copies and triads to try on this device, and the views from which launches are timed."""
    memory_bytes = environment.device_facts(device)["memory_bytes"] or 0
    kind = device.partition(":")[0]
    return moves(kind, last_cache_bytes(device), memory_bytes), (LAUNCH, CALL) if kind == "cuda" else (CALL,)


def timed(blank: Ceiling, subject: Trial | Move | str, share_s: float) -> Ceiling:
    """Return the row of one product or convolution, of one copy or triad, or of launches from one view."""
    with bench_of(blank.device, PRECISIONS[blank.precision or ALWAYS], blank.threads, share_s) as bench:
        if isinstance(subject, Trial):
            return bench.explained(bench.row(blank, subject, 1), subject)
        if isinstance(subject, Move):
            return move_row(bench, blank, subject, 1)
        return launch_row(bench, blank, subject, 1)
