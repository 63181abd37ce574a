"""The record of a comparison: one cell of two runs, and whether its step takes as long in both.

Answers of `python -m runners.report A B`, never kept in a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from results.names import nearest
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
    basis: str = ""  # pairs: interleaved blocks, by the sequential test; processes: their means scatter; blocks: of one
    # process each, so that only beyond the margin counts
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
    batch_size: int
    precision: str
    variant: str = ""
    outcome: str  # met (which fails), not met, undecided, not compared
    value_a: float | None = None
    value_b: float | None = None
    ratio: float | None = None
    low_ratio: float | None = None
    high_ratio: float | None = None
    basis: str = ""  # of times: pairs, processes, blocks; exact: a count that no noise is in
    reason: str = ""


UNCHANGED = "none"
"""The change of the row of the step as it is."""


@dataclass(frozen=True, kw_only=True)
class ChangeTrial(Record):
    """What one change brought. None: not measured, `reason` says why.

    change: its name, with its number where it has one ("batch_size=64"). status: one of STATUSES. ratio: samples per
    second with the change ÷ without it, measured in interleaved blocks; low, high: its 95 % interval. rounds: of A B B
    A. step_time_s: of the changed step. samples: of it. memory_bytes: what the changed step holds at its highest:
    weights, optimizer state, and what the step itself allocates through torch.
    """

    change: str
    status: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    memory_bytes: int | None = None
    step_time_s: float | None = None
    samples: int | None = None
    rounds: int = 0
    reason: str = ""
    model: str = ""
    batch_size: int | None = None
    precision: str = ""
    device: str = ""
    device_name: str = ""


CHANGE_NAMES = (
    "channels_last",
    "bf16",
    "tf32",
    "compile",
    "fused_optimizer",
    "batch_size",
    "workers",
    "pinned_memory",
    "cuda_graph",
)
"""The changes that can be tried, in the order in which they are."""

LEAST_NUMBER = {"batch_size": 1, "workers": 0}
"""Changes that may have a number, and the least that it may be."""


def change_named(text: str) -> tuple[str, int | None]:
    """(name, number) of "batch_size=64" or "compile". Raises ValueError, in one line, for what cannot be."""
    name, equals, number = (part.strip() for part in text.partition("="))
    if name not in CHANGE_NAMES:
        near = nearest(name, CHANGE_NAMES)
        line = f"unknown change: expected {', '.join(CHANGE_NAMES)}, got {name!r}"
        raise ValueError(f"{line}, nearest {' or '.join(near)}" if near else line)
    if not equals:
        return name, None
    if name not in LEAST_NUMBER:
        raise ValueError(f"expected {name} without a number, got {text!r}")
    least = LEAST_NUMBER[name]
    if not number.isdecimal() or int(number) < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {number!r}")
    return name, int(number)


def ranked_changes(rows: Iterable[ChangeTrial]) -> list[ChangeTrial]:
    """The best first; the step as it is once, with the mean of its times; what has no ratio last, in its order."""
    every = list(rows)
    same = [row for row in every if row.change == UNCHANGED]
    others = [row for row in every if row.change != UNCHANGED]
    times = [row.step_time_s for row in same if row.step_time_s is not None]
    first = [replace(same[0], step_time_s=sum(times) / len(times))] if times else []
    known = [*first, *(row for row in others if row.ratio is not None)]
    return [*sorted(known, key=lambda row: -(row.ratio or 0.0)), *(row for row in others if row.ratio is None)]
