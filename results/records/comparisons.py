"""The records of a comparison and of gates: whether a cell's step takes as long in two runs, whether a run may stand.

Answers of `python -m runners.report A B` and `DIR --check`, never kept in a run: they can be had again from its rows.
"""

from dataclasses import dataclass, field

from results.records.fields import FromOne, Json, Probability, Signed
from results.records.rows import Record

FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "same", "cannot tell"
ONLY_A, ONLY_B = "only in A", "only in B"


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """The step of one cell in run B against that in run A. Ratios are of times: below 1, B is faster."""

    model: str
    batch_size: FromOne
    precision: str
    device: str
    variant: str = ""  # what else sets the cell apart, of B where the two differ by choice
    verdict: str  # of B: faster, slower, same, cannot tell; only in A, only in B
    ratio: Signed | None = None  # mean step time in B ÷ in A, of sessions relative to the ceiling timed beside it
    low_ratio: Signed | None = None  # 95 % interval of this cell by itself
    high_ratio: float | None = None
    error_ratio: float | None = None  # standard error of the logarithm of the ratio
    degrees: float | None = None  # of freedom of that
    margin_ratio: float | None = None  # up to which a difference is none that matters
    p_different: Probability | None = None  # over all cells (Holm)
    p_same: Probability | None = None  # the same of the two one-sided tests that it is within the margin
    basis: str = ""  # sessions, processes: their means scatter; blocks: of one process, beyond the margin
    time_a_s: float | None = None
    time_b_s: float | None = None
    cells_a: tuple[str, ...] = ()  # cell ids, one a repeat
    cells_b: tuple[str, ...] = ()
    blocks_a: int = 0
    blocks_b: int = 0
    reason: str = ""  # why it is undecided, or is in one run alone


MET, NOT_MET, UNDECIDED, NOT_COMPARED = "met", "not met", "undecided", "not compared"


@dataclass(frozen=True, kw_only=True)
class GateCheck(Record):
    """One condition of a gate on one cell: whether run B may replace run A as far as it goes.

    value_a, value_b: seconds a step, or the exact quantity. ratio: B ÷ A. low_ratio, high_ratio: of times, at the alarm
    rate of all cells together. condition: slower, flop, bytes, launches, memory; trains: measured in A, failed
    in B; matched: whether both runs have it.
    """

    condition: str
    limit_ratio: float = 0.0  # by how much more B may have
    model: str
    batch_size: FromOne
    precision: str
    variant: str = ""
    outcome: str  # met (which fails), not met, undecided, not compared
    value_a: float | None = None
    value_b: float | None = None
    ratio: Signed | None = None
    low_ratio: Signed | None = None
    high_ratio: float | None = None
    basis: str = ""  # of times: sessions, processes, blocks; exact: a count that no noise is in
    reason: str = ""


PASS, FAIL, OPEN = "pass", "fail", "open"


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """One gate. open: the run has nothing to compare with."""

    gate: str
    checks: str  # what it asks, in words
    verdict: str  # pass, fail, open
    asked: int = 0  # cells (or parts of the run) that had data for it
    cell_ids: tuple[str, ...] = ()  # of a fail the cells that fail, of a pass those that were asked
    found: Json = field(default_factory=dict)  # cell id ("run": the whole run) → what was found there, with its numbers
    reason: str = ""  # of an open gate: what is missing; of cells left out: why
    needed: bool = False  # whether a published run of this kind of device must be asked


def stands(verdict: Verdict) -> bool:
    """Whether a run may be published by this gate: it passes, or is open and not needed."""
    return verdict.verdict == PASS or (verdict.verdict == OPEN and not verdict.needed)
