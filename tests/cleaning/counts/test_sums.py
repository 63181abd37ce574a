"""Sums of numbers some of which are unknown: what is known alone, or nothing unless all are."""

from __future__ import annotations

import pytest

from cleaning.counts.sums import known_sum, whole_sum


@pytest.mark.parametrize(
    ("values", "known", "whole"),
    [([2, 3], 5, 5), ([2, None], 2, None), ([None], None, None), ([0], 0, 0), ([], None, 0)],
)
def test_a_sum_is_whole_only_if_every_value_is_known(values: list[int | None], known: int | None, whole: int | None):
    assert (known_sum(values), whole_sum(values)) == (known, whole)
