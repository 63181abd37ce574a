"""The record of a comparison: one cell of two runs, and whether its step takes as long in both.

Answers of `python -m runners.report A B`, never kept in a run.
"""

from __future__ import annotations

from dataclasses import dataclass

from results.records.rows import Record

FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "same", "cannot tell"
ONLY_A, ONLY_B = "only in A", "only in B"


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """The step of one cell in run B against that in run A. Ratios are of times: below 1, B is faster."""

    model: str
    batch_size: int
    precision: str
    device: str
    variant: str = ""  # what else sets the cell apart, of B where the two differ by choice
    verdict: str  # of B: faster, slower, same, cannot tell; only in A, only in B
    ratio: float | None = None  # mean step time in B ÷ in A
    low_ratio: float | None = None  # 95 % interval of this cell by itself
    high_ratio: float | None = None
    margin_ratio: float | None = None  # up to which a difference is none that matters
    p_different: float | None = None  # over all cells (Holm)
    p_same: float | None = None  # the same of the two one-sided tests that it is within the margin
    basis: str = (
        ""  # processes: their means scatter; blocks: of one process each, so that only beyond the margin counts
    )
    time_a_s: float | None = None
    time_b_s: float | None = None
    cells_a: tuple[str, ...] = ()  # cell ids, one a repeat
    cells_b: tuple[str, ...] = ()
    blocks_a: int = 0
    blocks_b: int = 0
    reason: str = ""  # why it cannot be told, or is in one run alone
