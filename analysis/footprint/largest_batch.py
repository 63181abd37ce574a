"""Finds the largest batch whose training step fits into a device's memory.

`largest_batch` takes the available bytes, and a function from a batch to the live bytes at each moment of its step. It
predicts the batch from small batches, verifies the prediction on the step, and returns a `BatchFit`. `reserved_fits`
adds the batch for which the allocator's reserved memory fits. Not claimed: that memory outside of the step, such as
workspaces, leaves room for the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

SMALL_BATCHES = (2, 4)
"""Batches from which all others are predicted. Not 1: the strides of a dimension of size 1 are arbitrary."""

BATCH_MULTIPLE = 8
"""Batches are rounded down to a multiple of this number, for which kernels are optimized."""

MOST = 2**24
"""Largest batch that is tried."""


@dataclass(frozen=True)
class BatchFit:
    """The largest batch that fits, and how it was found.

    largest_batch: by live bytes; 0 where not even the smallest fits. needed: each batch that was tried → its live
    bytes. predicted: the batch predicted from the small batches; None where they predict nothing. capped: the next
    batch was not tried, since it is beyond MOST, or the step refused it with the message `refused`. fits: the batch
    whose reserved segments fit, a multiple of BATCH_MULTIPLE where it is that large. reserved_bytes: bytes of these
    segments.
    """

    largest_batch: int
    available_bytes: int
    needed: dict[int, int]
    predicted: int | None
    capped: bool = False
    refused: str = ""
    fits: int = 0
    reserved_bytes: int = 0


def round_batch(batch: int) -> int:
    """Return the batch rounded down to a multiple of BATCH_MULTIPLE; a batch below BATCH_MULTIPLE is returned as it
    is."""
    return batch - batch % BATCH_MULTIPLE if batch > BATCH_MULTIPLE else batch


def reserved_fits(live_fit: BatchFit, reserved: Callable[[int], int], least: int) -> BatchFit:
    """Return the fit with a batch whose reserved bytes fit, searched from the largest batch downwards. reserved: batch
    → bytes of its segments and of what the step needs besides them. least: the smallest batch that the step takes."""
    batch, nbytes = round_batch(live_fit.largest_batch), 0
    while batch >= least and (nbytes := reserved(batch)) > live_fit.available_bytes:
        batch = min(batch - 1, batch * live_fit.available_bytes // nbytes)
        batch = round_batch(batch)
    fits = batch if batch >= least else 0
    return replace(live_fit, fits=fits, reserved_bytes=nbytes if fits else 0)


def largest_batch(
    need: Callable[[int], Sequence[int]], available_bytes: int, least: int = 1, most: int = MOST
) -> BatchFit:
    """Find the largest batch: it fits, and the next one does not, or the step refuses it (ValueError).

    If the operations do not change, the live bytes at each moment are linear in the batch, so that two small batches
    predict the peak of any batch. Where the operations change with the batch, the search doubles and halves. need:
    batch → bytes at each moment of its step, which do not decrease with the batch. least: the smallest batch that the
    step takes. Raises ValueError if the step refuses that batch.
    """
    looked: dict[int, Sequence[int]] = {}
    refused: dict[int, str] = {}

    def fits(batch: int) -> bool:
        if batch not in looked and batch not in refused:
            try:
                looked[batch] = need(batch)
            except ValueError as fault:
                if batch <= least:
                    raise
                refused[batch] = str(fault)
        return batch in looked and max(looked[batch]) <= available_bytes

    low, high, guess = least - 1, most + 1, None
    small = [batch for batch in SMALL_BATCHES if least <= batch <= most]
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
    needed = {number: max(looked[number]) for number in sorted(looked)}
    text = refused.get(low + 1, "")
    largest = low if low >= least else 0
    return BatchFit(largest, available_bytes, needed, guess, largest >= most or bool(text), text)


def _predicted_batch(small: Sequence[tuple[int, Sequence[int]]], available_bytes: int) -> int | None:
    """Return the largest batch whose bytes stay within the memory, extrapolated for each moment from two small batches.
    None without two batches that have the same number of moments."""
    if len(small) < 2 or len(small[0][1]) != len(small[1][1]):
        return None
    (first, low), (second, high) = small
    pairs = zip(low, high, strict=True)
    crossings = (first + (available_bytes - a) * (second - first) / (b - a) for a, b in pairs if b > a)
    return max(0, int(min(crossings, default=MOST)))
