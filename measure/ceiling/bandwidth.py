"""How fast memory is: a copy, b = a, and a triad, a = b + s · c, over sizes beyond and within the last cache.

Bytes are those of the operands: a copy of n moves 2 n, a triad 3 n. A processor that fetches a line before it writes it
moves n more, which is not counted: so it is in the bytes of a model's operations, to which this rate is applied.
On CUDA events time the kernels; in memory the L2 cache is overwritten before each. Within a cache many calls in a row
are timed as one, nothing is overwritten, and on CUDA the smallest are bound by their launches.

Not claimed: the rate of the memory's own interface. It is what torch's kernels reach, on a CPU with torch's threads.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from measure.ceiling.ceilings import Bench, Call, with_times
from measure.ceiling.trials import CACHE, Move
from results.records.samples import Ceiling

BLOCK_BYTES = 1 << 28
"""What calls within a cache move together, so that their time is far above a clock's tick."""

PATTERN = 1 << 18
SCALE = 1.5

CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_cache_bytes(device: str, caches: Path = CPU_CACHES) -> int | None:
    """Size of the device's last cache; None where nothing says it."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(torch.device(device)).L2_cache_size) or None
    sizes = [_bytes(file.read_text()) for file in sorted(caches.glob("index*/size"))]
    return max(sizes, default=None)


def row(bench: Bench, blank: Ceiling, move: Move, trials_left: int) -> Ceiling:
    """`blank` with the rate of one copy or triad, in its share of the time that the bench has left."""
    blank = replace(blank, operation=move.operation, shape=move.shape, family=move.family)
    in_a_row = max(1, BLOCK_BYTES // move.moved_bytes) if move.family == CACHE else 1

    def measure_move(until_s: float) -> Ceiling:
        call = _prepared(bench.device, move)
        times_s = bench.call_times_s(_repeated(call, in_a_row), until_s, cold=move.family != CACHE)
        each_s = [time_s / in_a_row for time_s in times_s]
        rate = move.moved_bytes / median(each_s)
        return with_times(replace(blank, moved_bytes=move.moved_bytes, bytes_per_s=rate), each_s)

    return bench.guarded(blank, trials_left, measure_move)


def rows(bench: Bench, blank: Ceiling, moves: Iterable[Move]) -> list[Ceiling]:
    """One row a move, sharing the time that the bench has left."""
    planned = list(moves)
    return [row(bench, blank, move, len(planned) - i) for i, move in enumerate(planned)]


def _prepared(device: torch.device, move: Move) -> Call:
    """The call on operands that are in memory already: random numbers that repeat after a MiB."""
    pattern = torch.randn(min(PATTERN, move.elements), generator=torch.Generator().manual_seed(0)).to(device)
    source = pattern.repeat(-(-move.elements // len(pattern)))[: move.elements]
    target = source.clone()
    if move.operation == "copy":
        return lambda: target.copy_(source)
    other = source.clone()
    return lambda: torch.add(source, other, alpha=SCALE, out=target)


def _repeated(call: Call, times: int) -> Call:
    def calls() -> None:
        for _ in range(times):
            call()

    return calls


def _bytes(text: str) -> int:
    """ "32768K" → 33554432."""
    text = text.strip()
    return int(text[:-1]) * _SUFFIXES[text[-1]] if text[-1:] in _SUFFIXES else int(text)
