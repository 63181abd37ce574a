"""Lines through counts: exact, or none."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from analysis.stats.affine import affine, line


def test_a_line_goes_through_every_point_to_the_unit() -> None:
    numbers = random.Random(7)
    for _ in range(200):
        a, c = numbers.randrange(1, 10**12), numbers.randrange(-(10**9), 10**9)
        batches = numbers.sample(range(1, 2000), 4)
        points = {(b, a * b + c) for b in batches}
        assert line(points) == (Fraction(a), Fraction(c))
        assert affine(points, at=64) == 64 * a + c
        for place in range(4):
            b, y = sorted(points)[place]
            assert line((points - {(b, y)}) | {(b, y + 1)}) is None


def test_it_is_exact_beyond_floats() -> None:
    big = 10**20 + 1
    assert affine([(1, big), (2, 2 * big)], at=64) == 64 * big


def test_a_line_that_is_not_whole_there_is_none() -> None:
    assert affine([(1, 1), (3, 2)], at=5) == 3
    assert affine([(1, 1), (3, 2)], at=4) is None
    assert affine([(1, 0), (3, 1)], at=2) is None  # half a FLOP is none
    assert affine([(1, 1.5), (2, 2)], at=3) is None  # 2.5
    assert affine([(1, 1.5), (2, 2)], at=2) == 2


@pytest.mark.parametrize("points", [[], [(1, 5)], [(1, 5), (1, 5)], [(1, 5), (1, 6)]])
def test_one_batch_is_on_no_line(points: list[tuple[int, int]]) -> None:
    assert line(points) is None
    assert affine(points, at=2) is None
