"""Definition: the largest batch that fits, by brute force over memory that is a line, bends, jumps or does not grow."""

import random
from collections.abc import Callable

import pytest

from analysis.footprint.largest_batch import BatchFit, largest_batch, reserved_fits


def brute(need, available: int, most: int) -> int:
    """The last batch before the first that does not fit."""
    for batch in range(1, most + 1):
        found = need(batch)
        if max(found) > available:
            return batch - 1
    return most


@pytest.mark.parametrize("seed", range(40))
def test_equals_brute_force(seed: int) -> None:
    """Moments that are lines, of which another one is the highest at another batch."""
    dice = random.Random(seed)
    lines = [(dice.randint(0, 500), dice.randint(0, 40)) for _ in range(dice.randint(1, 6))]
    available = dice.randint(0, 4000)

    def need(batch: int):
        return [at + slope * batch for at, slope in lines]

    most = 2000
    found = largest_batch(need, available, most=most)
    assert found.largest_batch == brute(need, available, most)
    assert found.capped == (found.largest_batch == most)
    edge = {found.largest_batch, found.largest_batch + 1} & set(range(1, most + 1))
    assert edge <= found.needed.keys(), "the largest that fits and the next were looked at themselves"


@pytest.mark.parametrize("seed", range(20))
def test_jumps_are_found(seed: int) -> None:
    """A step that takes another course from some batch on: no line predicts it."""
    dice = random.Random(seed)
    jumps = sorted((dice.randint(1, 300), dice.randint(1, 900)) for _ in range(3))

    def need(batch: int) -> list[int]:
        return [7 * batch + sum(more for start, more in jumps if batch >= start)] * (1 + batch % 2)

    available = dice.randint(10, 4000)
    assert largest_batch(need, available, most=1000).largest_batch == brute(need, available, 1000)


@pytest.mark.parametrize(("most", "available"), [(1, 10**6), (2, 10**6), (3, 10**6), (57, 10**6), (57, 200), (57, 8)])
def test_a_step_that_takes_no_larger_batch(most: int, available: int) -> None:
    """3 bytes a sample, up to a batch that an exported graph may have as its largest: that one, or what fits below."""

    def need(batch: int):
        if batch > most:
            raise ValueError(f"batch of 1 to {most}, got {batch}")
        return [3 * batch, 2]

    found = largest_batch(need, available)
    assert found.largest_batch == min(most, available // 3)
    assert found.capped == (found.largest_batch == most)
    assert found.refused == (f"batch of 1 to {most}, got {most + 1}" if found.capped else "")
    assert found.capped or found.largest_batch + 1 in found.needed


@pytest.mark.parametrize(
    ("at_most", "reserved", "expected"),
    [
        (83, lambda n: 12 * n, (80, 960)),  # the segments of 83 would fit; the multiple of eight below it does
        (83, lambda n: 15 * n, (64, 960)),  # 80 takes 1,200 of 1,000: 80 · 1,000 ÷ 1,200 = 66, and 64 of that
        (83, lambda n: 900 + 15 * n, (6, 990)),  # below eight no rounding: 6 fits, 7 would take 1,005
        (7, lambda n: 100 * n, (7, 700)),
        (83, lambda n: 2000, (0, 0)),  # a pool that is too large for any batch
        (0, lambda n: 1, (0, 0)),  # no batch fits by live bytes
    ],
)
def test_a_batch_fits_by_what_the_allocator_reserves(
    at_most: int, reserved: Callable[[int], int], expected: tuple[int, int]
) -> None:
    fit = reserved_fits(BatchFit(at_most, 1000, {}, None), reserved, 1)
    assert (fit.fits, fit.reserved_bytes) == expected
    assert fit.largest_batch == at_most
