"""A number of a row that nothing can have measured is said with its column and the least that is possible."""

from __future__ import annotations

import math

import pytest

from cleaning.facts.values import faults
from results.records.samples import Ceiling


@pytest.mark.parametrize(
    ("median_s", "said"),
    [
        (0.0, []),
        (math.nextafter(0, 1), []),
        (-1.0, ["median_s is -1.0, at least 0 is possible"]),
        (math.inf, ["median_s is inf"]),
        (math.nan, ["median_s is nan"]),
    ],
)
def test_a_number_below_its_least_or_without_an_end_is_a_fault(median_s: float, said: list[str]) -> None:
    words = {
        "sitting": "s",
        "device": "cpu",
        "precision": "fp32",
        "unit": "fp32",
        "operation": "matmul",
        "shape": "8x8",
    }
    row = Ceiling(**words, median_s=median_s)
    assert [fault for fault in faults(row) if fault.startswith("median_s")] == said
