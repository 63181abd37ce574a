"""The records of an account: what each counter gives for a model, and every FLOP between that and the exact count.

They are answers of `runners.count`, kept in files of their own and never in a run. docs/counters.md is made from them.
"""

from dataclasses import dataclass, field
from typing import Annotated

from results.records.fields import SIGNED, Counts, FromOne, Signed
from results.records.rows import Record


@dataclass(frozen=True, kw_only=True)
class Account(Record):
    """One counter's number of one pass over one model. Exact FLOP + all causes + unexplained FLOP = native value."""

    model: str
    batch_size: FromOne
    counter: str
    phase: str  # forward, backward
    status: str = "ok"
    reason: str = ""
    native_unit: str = ""  # mac or flop, of what the counter's total is made
    native_value: Annotated[int | float | None, SIGNED] = None  # as its user sees it
    flop: int | None = None  # the same in FLOP: 2 a multiply-add, 1 any other operation that it counts
    exact_flop: int | None = None  # model FLOP of this pass in a training step, the loss with the forward pass
    flop_ratio: Signed | None = None  # flop ÷ exact_flop
    unexplained_flop: Annotated[int | float | None, SIGNED] = None  # of native_value; 0 where every FLOP has a cause
    largest_cause: str = ""  # beside the convention
    parameters: int | None = None
    ignored: Counts = field(default_factory=dict)  # operator → calls left out on purpose
    not_understood: Counts = field(default_factory=dict)  # operator → calls that the counter has no rule for
    duration_s: float | None = None  # of its count, both passes
    peak_memory_bytes: int | None = None
    at_least_flop: int | None = None  # where exact_flop is not known: of the calls of this pass that have a rule
    unknown_calls: int | None = None  # of this pass in a training step: calls that the exact count has no rule for


@dataclass(frozen=True, kw_only=True)
class AccountCause(Record):
    """One reason why a counter's native value is not the exact FLOP, by kind of operation and module."""

    model: str
    batch_size: FromOne
    counter: str
    phase: str
    cause: str  # a word of cleaning/accounts/vocabulary/causes.py
    kind: str
    module: str = ""
    flop: Annotated[int | float, SIGNED]  # what it adds to the exact count, in the unit of the native value
