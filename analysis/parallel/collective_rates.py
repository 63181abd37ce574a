"""Collectives timed alone, over sizes: how fast, and how much of a link each rank needs for it at least.

For n ranks and a buffer of S bytes (of all_reduce what each rank gives and gets; of all_gather what each gets, of
reduce_scatter what each gives, of all_to_all both):

    algorithm rate = S ÷ time;  link rate = algorithm rate × the share of S that each rank has to send at least

The share is (n − 1) ÷ n, because a rank has its own part already; of all_reduce twice that, because each part has to be
summed from all and to reach all. The link rate can be compared with a link's own; nccl-tests calls it bus bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from results.records.rows import Record

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True, kw_only=True)
class CollectiveRate(Record):
    """One collective of one size. Times are of one call, on the slowest rank; nbytes: S."""

    operation: str
    ranks: int
    backend: str  # gloo, nccl
    device: str
    nbytes: int
    calls: int | None = None
    median_s: float | None = None  # of blocks of calls
    best_s: float | None = None
    algorithm_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    status: str = "ok"
    reason: str = ""


def sent_share(operation: str, ranks: int) -> Fraction:
    """The part of a buffer that each rank sends at least. Raises KeyError for no collective of COLLECTIVES."""
    once = Fraction(ranks - 1, ranks)
    return {"all_reduce": 2 * once, "all_gather": once, "reduce_scatter": once, "all_to_all": once}[operation]
