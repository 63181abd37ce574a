"""The largest batch whose step fits into memory: predicted from the steps of small batches, and then looked at.

At one order of operations each moment's live bytes are a line in the batch, so two small batches say which moment is
the highest at any batch; a prediction is where the first line crosses the memory. What is returned was looked at
itself: that batch fits and the next one does not. A step whose operations change with the batch has no lines in common;
then the search goes by doubling and by halves. It needs memory that does not fall as the batch grows. A batch that a
step refuses (ValueError) does not fit.
"""

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


def largest_batch(
    need: Callable[[int], Sequence[int] | int], available_bytes: int, least: int = 1, most: int = MOST
) -> BatchFit:
    """Look for it. need: batch → bytes at each moment of its step, or of the highest alone, and raises what the step
    does; ValueError: it takes no such batch. least: the smallest batch that the step takes."""
    looked: dict[int, Sequence[int] | int] = {}
    refused: dict[int, str] = {}

    def fits(batch: int) -> bool:
        if batch not in looked and batch not in refused:
            try:
                looked[batch] = need(batch)
            except ValueError as fault:
                if batch <= least:
                    raise
                refused[batch] = str(fault)
        return batch in looked and _highest(looked[batch]) <= available_bytes

    low, high, guess = least - 1, most + 1, None
    small = [batch for batch in SMALL if least <= batch <= most]
    for batch in (least, *small):
        if batch < high:
            low, high = (batch, high) if fits(batch) else (low, batch)
    if low >= least:
        guess = _predicted_batch([(batch, looked[batch]) for batch in small if batch in looked], available_bytes)
        trials = [] if guess is None else [guess, guess + 1, guess - 1]
        while high - low > 1:
            beyond = 2 * low if high > most else (low + high) // 2
            trial = next((trial for trial in trials if low < trial < high), beyond)
            trial = min(trial, most, high - 1)
            low, high = (trial, high) if fits(trial) else (low, trial)
    needed = {number: _highest(looked[number]) for number in sorted(looked)}
    text = refused.get(low + 1, "")
    largest = low if low >= least else 0
    return BatchFit(largest, available_bytes, needed, guess, largest >= most or bool(text), text)


def _highest(moments: Sequence[int] | int) -> int:
    return moments if isinstance(moments, int) else max(moments)


def _predicted_batch(small: Sequence[tuple[int, Any]], available_bytes: int) -> int | None:
    """Where the first moment's line through two small batches crosses the memory; None without two that have as many
    moments, each at one order of operations."""
    if len(small) < 2 or isinstance(small[0][1], int) or len(small[0][1]) != len(small[1][1]):
        return None
    (first, low), (second, high) = small
    pairs = zip(low, high, strict=True)
    crossings = (first + (available_bytes - a) * (second - first) / (b - a) for a, b in pairs if b > a)
    return max(0, int(min(crossings, default=MOST)))
