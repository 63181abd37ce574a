"""Injected fault, known answer: blocks of a paired ceiling, made longer or shorter, fail the gates of times."""

from dataclasses import replace
from pathlib import Path

import pytest

from cleaning.gates import times
from results.records.cell import Sample
from runners.rebuild import evidence_of

SMALL = Path(__file__).parents[3] / "results" / "published" / "amd-epyc-2-cores-2026-11-29"


@pytest.fixture(scope="module")
def evidence():
    return evidence_of(SMALL)


def of_ceilings(evidence, factor: float):
    """The evidence with all times of ceilings' blocks multiplied, and with the paired rate that follows."""
    samples = [
        replace(each, wall_s=each.wall_s * factor) if each.part == "ceiling" else each
        for each in evidence.data.records(Sample)
    ]
    data = replace(evidence.data, rows={**evidence.data.rows, "samples.csv": samples})
    rebuilt = [
        replace(row, peak_flop_per_s=row.peak_flop_per_s / factor) if row.denominator == "paired_ceiling" else row
        for row in evidence.rebuilt
        if row.peak_flop_per_s
    ]
    return replace(evidence, data=data, rebuilt=rebuilt)


def test_as_measured_they_pass(evidence):
    for gate in (times.synchronised, times.possible_time):
        assert [finding.text for finding in gate(of_ceilings(evidence, 1.0)) if not finding.holds] == []


@pytest.mark.parametrize("factor", [1.05, 1.3])
def test_longer_blocks_overlap_the_steps_after_them(evidence, factor):
    findings = list(times.synchronised(of_ceilings(evidence, factor)))
    paired = {row.cell_id for row in evidence.rebuilt if row.denominator == "paired_ceiling" and row.peak_flop_per_s}
    assert paired
    assert {finding.cell_id for finding in findings if not finding.holds} == paired


def test_a_paired_rate_far_above_the_sessions_ceiling_fails(evidence):
    failed = [finding for finding in times.possible_time(of_ceilings(evidence, 0.2)) if not finding.holds]
    assert any("the paired ceiling is" in finding.text for finding in failed)
