"""The largest batch whose step fits into memory: predicted from the steps of small batches, and then looked at.

At one order of operations each moment's live bytes are a line in the batch, so two small batches say which moment is
the highest at any batch (`Lines`); a prediction is where the first line crosses the memory. What is returned was looked
at itself: that batch fits and the next one does not. A step whose operations change with the batch has no lines in
common; then the search goes by the secant of what was looked at last, and by halves. It needs memory that does not
fall as the batch grows. A batch that a step refuses (ValueError: an exported graph has a largest one) does not fit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

SMALL = (2, 4)
"""Batches from which all others are predicted. Not 1, whose strides are any."""

EIGHT = 8
"""Batches are rounded down to a multiple of this, for which kernels are made."""

MOST = 2**24
"""Larger batches are not looked for."""


@dataclass(frozen=True)
class BatchFit:
    """largest_batch: by live bytes, 0 where not even the smallest fits. needed: batch → these, of all that were looked
    at. fits: the batch whose reserved segments fit, a multiple of EIGHT where it is that large; reserved_bytes: its.

    predicted: by the small batches alone; None where they predict nothing. capped: the next batch was not looked at, as
    it is beyond MOST, or the step refuses it: refused has its words.
    """

    largest_batch: int
    available_bytes: int
    needed: dict[int, int]
    predicted: int | None
    capped: bool = False
    refused: str = ""
    fits: int = 0
    reserved_bytes: int = 0


def in_eights(batch: int) -> int:
    """The largest multiple of EIGHT that is no larger; a smaller batch as it is."""
    return batch - batch % EIGHT if batch > EIGHT else batch


def reserved_fits(at_most: BatchFit, reserved: Callable[[int], int], least: int) -> BatchFit:
    """With the batch whose reserved bytes fit. reserved: batch → bytes of its segments and what lies beside them."""
    batch, nbytes = in_eights(at_most.largest_batch), 0
    while batch >= least and (nbytes := reserved(batch)) > at_most.available_bytes:
        batch = min(batch - 1, batch * at_most.available_bytes // nbytes)
        batch = in_eights(batch)
    fits = batch if batch >= least else 0
    return replace(at_most, fits=fits, reserved_bytes=nbytes if fits else 0)


@dataclass(frozen=True)
class Lines:
    """Bytes of each moment at two batches, in the same order of operations."""

    first: tuple[int, Sequence[int]]
    second: tuple[int, Sequence[int]]

    def largest(self, available_bytes: int) -> int:
        """The largest batch of which every moment is below; MOST if they are at every batch."""
        (one, low), (other, high) = self.first, self.second
        found: float = MOST
        for a, b in zip(low, high, strict=True):
            if b > a:
                found = min(found, one + (available_bytes - a) * (other - one) / (b - a))
        return max(0, int(found))


def largest_batch(
    need: Callable[[int], Sequence[int] | int], available_bytes: int, least: int = 1, most: int = MOST
) -> BatchFit:
    """Look for it. need: batch → bytes at each moment of its step, or of the highest alone, and raises what the step
    does; ValueError: it takes no such batch. least: the smallest batch that the step takes."""
    at = _Looked(need, least)
    if at.highest(least) > available_bytes:
        return at.fit(0, available_bytes, None)
    small = [batch for batch in SMALL if least <= batch <= most]
    high = min((batch for batch in small if at.highest(batch) > available_bytes), default=None)
    low = max((batch for batch in small if high is None or batch < high), default=least)
    guess = _predicted_batch([(batch, at.looked[batch]) for batch in small if batch in at.looked], available_bytes)
    trial = guess if guess is not None else 2 * low
    while high is None or high - low > 1:
        trial = min(max(trial, low + 1), most if high is None else high - 1)
        fits = at.highest(trial) <= available_bytes
        low, high = (trial, high) if fits else (low, trial)
        if low >= most:
            break
        if trial == guess and trial not in at.refused:  # a prediction is proved by one neighbour
            trial += 1 if fits else -1
        else:
            halves = high in at.refused or len(at.looked) % 3 == 0
            trial = _between(low, high, at.highest, available_bytes, halves)
    return at.fit(low, available_bytes, guess, capped=low >= most)


class _Looked:
    """The batches that were looked at: what each needs, and why the step refused it."""

    def __init__(self, need: Callable[[int], Sequence[int] | int], least: int) -> None:
        self._need, self._least = need, least
        self.looked: dict[int, Any] = {}
        self.refused: dict[int, str] = {}

    def highest(self, batch: int) -> float:
        """Bytes of the highest moment; infinite where the step refuses the batch. Raises what it says of the least."""
        if batch not in self.looked and batch not in self.refused:
            try:
                self.looked[batch] = self._need(batch)
            except ValueError as fault:
                if batch <= self._least:
                    raise
                self.refused[batch] = str(fault)
        found = self.looked.get(batch, math.inf)
        return found if isinstance(found, (int, float)) else max(found)

    def fit(self, batch: int, available_bytes: int, guess: int | None, capped: bool = False) -> BatchFit:
        """What was found."""
        needed = {number: int(self.highest(number)) for number in sorted(self.looked)}
        refused = self.refused.get(batch + 1, "")
        return BatchFit(batch, available_bytes, needed, guess, capped or bool(refused), refused)


def _predicted_batch(small: Sequence[tuple[int, Any]], available_bytes: int) -> int | None:
    """By the lines of two small batches; None without two that have as many moments."""
    if len(small) < 2 or isinstance(small[0][1], int) or len(small[0][1]) != len(small[1][1]):
        return None
    return min(Lines(*small).largest(available_bytes), MOST)


def _between(low: int, high: int | None, highest: Callable[[int], float], available_bytes: int, halves: bool) -> int:
    """Between what fits and what does not: where their line crosses, or their middle; without the latter, twice."""
    if high is None:
        return 2 * low
    if halves:
        return (low + high) // 2
    below, above = highest(low), highest(high)
    return low + int((available_bytes - below) * (high - low) // max(1, above - below))
