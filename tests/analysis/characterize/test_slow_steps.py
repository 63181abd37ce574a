"""Steps that took longer than their neighbours: made up, with and without processor time, and one that was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.characterize.stationarity import slow_steps
from reports.characterize.sections import REASONS, _slow
from results.records.characterization import PLAIN, PROFILED, WARM_UP, Characterization, RecordedStep
from runners.characterize.command import read_rows
from tests.support.made_up.made_up_characterization import together

KEPT = Path(__file__).parents[3] / "results" / "published" / "fathom-2026-11-22"
RECORDING = together().recordings[0]
NUMBER = RECORDING.recording


def steps(*times: float, part: str = PLAIN, cpu: tuple[float, ...] | None = None) -> list[RecordedStep]:
    used = cpu or (None,) * len(times)
    return [
        RecordedStep(recording=NUMBER, part=part, step=place, time_s=time_s, cpu_s=cpu_s)
        for place, (time_s, cpu_s) in enumerate(zip(times, used, strict=True))
    ]


def found(*made: list[RecordedStep]) -> list[tuple[str, int, float, bool | None]]:
    data = Characterization(recordings=(RECORDING,), steps=tuple(step for part in made for step in part))
    return [(each.step.part, each.step.step, each.others_s, each.busy) for each in slow_steps(data)]


@pytest.mark.parametrize(
    ("times", "slow"),
    [
        ((1.0, 2.1, 1.0), [(PLAIN, 1, 1.0, None)]),
        ((1.0, 2.0, 1.0), []),  # twice is not longer than twice
        ((1.0, 5.0), []),  # of two nobody knows which is usual
        ((5.0, 1.0, 1.2, 1.4), [(PLAIN, 0, 1.2, None)]),
        ((5.0, 5.0, 1.0), []),
        ((), []),
    ],
)
def test_the_slowest_against_the_median_of_the_others(times: tuple[float, ...], slow: list[object]) -> None:
    assert found(steps(*times)) == slow


def test_each_part_for_itself_and_warming_up_is_none() -> None:
    parts = (steps(9, 1, 1, part=WARM_UP), steps(9, 9, 9), steps(1, 1, 3, part=PROFILED))
    assert found(*parts) == [(PROFILED, 2, 1, None)]


@pytest.mark.parametrize(("slow_cpu_s", "busy"), [(3.0, True), (2.6, True), (2.5, False), (1.0, False)])
def test_whether_a_processor_worked_on_it(slow_cpu_s: float, busy: bool) -> None:
    """It took 2 s longer: with 1.6 s more of processor time it was at work."""
    assert found(steps(1, 3, 1, 1, cpu=(1, slow_cpu_s, 1, 1))) == [(PLAIN, 1, 1, busy)]
    unknown = steps(1, 3, 1, 1, cpu=(1, slow_cpu_s, 1, 1))
    assert found([replace(unknown[0], cpu_s=None), *unknown[1:]]) == [(PLAIN, 1, 1, None)]


def test_the_note_says_how_long_and_why() -> None:
    data = Characterization(recordings=(RECORDING,), steps=tuple(steps(1, 3, 1, cpu=(1, 3, 1))))
    said = " ".join(_slow(data))
    assert f"{RECORDING.workload}, {RECORDING.mode}: of its plain steps number 2 took 3.00 s, 3.0 times as long" in said
    assert said.endswith(REASONS[True])


def test_the_step_that_was_recorded() -> None:
    """Fathom's residual network: one step of three under the profiler, on an idle machine; its README says why."""
    (slow,) = slow_steps(replace(read_rows(KEPT), calls=()))
    assert (slow.recording.workload, slow.step.part, slow.step.step) == ("residual", PROFILED, 0)
    assert 2.3 < slow.step.time_s / slow.others_s < 2.5
