"""A training step on several accelerators, as section 6.2 of the paper (`analysis/project/frontier/learning_curves.py`)
has it.

Data parallelism with a synchronous step: dense gradients are summed in a ring (Patarasuk and Yuan 2009: 2(n - 1)/n of
the bytes pass each link), gradients of an embedding, of which a batch touches few rows, are gathered from all workers.
Layers on accelerators of their own work on successive steps of the sequence, as a pipeline. Not claimed: any overlap of
communication and arithmetic, latency, or that a larger batch learns as well.
"""

from __future__ import annotations

from collections.abc import Sequence

LINK_RATIO = 0.8
"""The share of a link's rate that is achieved. The paper prints none: with this one its four results of section 6.2
follow, with 1 none of them: a calibration."""


def ring_all_reduce_s(nbytes: float, workers: int, link_bytes_per_s: float) -> float:
    """Of so many bytes on each worker."""
    return 2 * (_count("workers", workers) - 1) / workers * nbytes / link_bytes_per_s


def gather_s(nbytes: float, workers: int, link_bytes_per_s: float) -> float:
    """What it takes a worker to receive what all workers have, its own included."""
    return _count("workers", workers) * nbytes / link_bytes_per_s if workers > 1 else 0.0


def sparse_gradient_bytes(batch: int, length: int, width: int, element_bytes: int = 4) -> int:
    """The embedding's gradient that one worker makes: a row for each of its symbols, indices left out."""
    return batch * length * width * element_bytes


def communication_s(
    dense_bytes: float, sparse_bytes: float, workers: int, link_bytes_per_s: float, link_ratio: float = LINK_RATIO
) -> float:
    """Both kinds of gradient, one after the other."""
    if not 0 < link_ratio <= 1:
        raise ValueError(f"expected a share of the link above 0 and at most 1, got {link_ratio:g}")
    achieved = link_bytes_per_s * link_ratio
    return ring_all_reduce_s(dense_bytes, workers, achieved) + gather_s(sparse_bytes, workers, achieved)


def pipelined_s(stages_s: Sequence[float], length: int, after_s: float = 0.0) -> float:
    """Layers that each take so long for one step of a sequence of `length`: the pipeline fills (the sum of one step of
    all but the slowest), then the slowest sets the pace; `after_s` is what waits for all steps (the output layer)."""
    if not stages_s:
        raise ValueError("expected a stage or more, got none")
    slowest = max(stages_s)
    return sum(stages_s) - slowest + _count("length", length) * slowest + after_s


def epoch_s(samples: float, batch: int, workers: int, step_s: float) -> float:
    """An epoch of so many samples, the last batch not rounded up."""
    return samples / (_count("batch", batch) * _count("workers", workers)) * step_s


def evened(pieces: Sequence[float], divisible: int) -> tuple[float, ...]:
    """Bytes on each accelerator after the piece at index `divisible` was split over all so that the fullest is as empty
    as can be. What the others have stays where it is."""
    whole = [nbytes for at, nbytes in enumerate(pieces) if at != divisible]
    spread, room = pieces[divisible], sorted([0.0, *whole])
    level = room[0]
    for count in range(1, len(room) + 1):
        level = (sum(room[:count]) + spread) / count
        if count == len(room) or level <= room[count]:
            break
    return tuple(max(level, 0.0 if at == divisible else nbytes) for at, nbytes in enumerate(pieces))


def _count(what: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{what}: expected 1 or more, got {number}")
    return number
