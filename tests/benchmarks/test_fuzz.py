"""Injected fault: each fast parser reads a damaged input or refuses it with one of this project's own errors."""

import pytest

from benchmarks.fuzz.__main__ import fuzz

QUICK = {
    "words": 20,
    "gate": 10,
    "formula": 60,
    "point": 60,
    "peaks": 60,
    "model": 60,
    "toml": 60,
    "deepspeed": 60,
    "pyprof": 20,
}
"""Parser → inputs, as many as a second takes; all others: `python -m benchmarks.fuzz`."""


@pytest.mark.parametrize("parser", QUICK)
def test_damaged_inputs_are_read_or_refused(parser):
    findings, done = fuzz(parser, QUICK[parser], seed=1)
    assert [(finding.what, finding.data[:200]) for finding in findings] == []
    assert done == QUICK[parser]
