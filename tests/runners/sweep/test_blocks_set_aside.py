"""Known answer: which blocks of a cell are used and what its rows report, on a host that moves processors as planned.

The cell trains for real. Its steps take what is planned, so that nothing is left to the machine that runs the test.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.utilization.step_times import step_times
from cleaning.gates.evidence import Evidence
from cleaning.gates.gates import GATES, judge
from measure.timing.stopping import CPU_PROTOCOL, Protocol
from results.records.answers import StepTime
from results.records.cell import Run, Sample
from results.store.store import read_run
from runners.sweep import cell as sweep_cell
from tests.support.fakes.fake_session import MEASURE, Scene, cell
from tests.support.fakes.hosts import Host

NEAR_S, FAR_S, WAIT_S = 0.11, 0.14, 0.05
"""A step while the processors are near to each other, and far from each other; its wait for one, where it waits."""

STEPS = 2
"""Of a block: 1.05 · 0.2 s ÷ 0.11 s or 0.14 s, rounded up; a wait is no reason for another number."""

JUDGED = ("committed", "synchronised")


class PlannedHost(Host):
    """A host by the number of the measured block: in `far` its processors are far from each other, in `waited` the
    process waits for one."""

    def __init__(self, far: Iterable[int], waited: Iterable[int]) -> None:
        super().__init__(1000.0)
        self.far, self.waited = set(far), set(waited)
        self.block, self.wait_s = 0, 0.0

    def step(self) -> None:
        self.now_s += FAR_S if self.block in self.far else NEAR_S
        if self.block in self.waited:
            self.now_s += WAIT_S
            self.wait_s += WAIT_S

    def disturbance(self) -> dict[str, float]:
        return {"run_wait_s": self.wait_s, "steal_s": 0.0}

    def round_trip(self) -> float:
        self.block += 1
        return 4e-7 if self.block - 1 in self.far else 1e-7


@dataclasses.dataclass(frozen=True)
class Found:
    """A cell's row, its blocks, and the row of its whole step."""

    run: Run
    samples: tuple[Sample, ...]
    time: StepTime

    @property
    def parts(self) -> str:
        """A letter for each block of whole steps after the warm-up."""
        letters = {"measure": "m", "moved": ".", "disturbed": "d"}
        return "".join(letters[each.part] for each in self.samples if each.part in letters)

    def numbered(self, number: int) -> Sample:
        """A measured block, from 0; as a negative number, from the last."""
        return [each for each in self.samples if each.part in ("measure", "moved", "disturbed")][number]


def swept(folder: Path, monkeypatch: pytest.MonkeyPatch, host: PlannedHost, **rules: Any) -> Found:
    """A session of one cell on this host, and what gates say of its blocks. rules: of its protocol."""
    protocol = dataclasses.replace(CPU_PROTOCOL, target_ci_ratio=0.9, min_time_s=1.0, **rules)
    workload = sweep_cell._workload(cell("synthetic_convolution"))

    class Planned(torch.nn.Conv2d):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            host.step()
            return super().forward(images)

    built = dataclasses.replace(workload, build=lambda **_: Planned(64, 64, 3, padding=1, bias=False))
    monkeypatch.setattr(sweep_cell, "_workload", lambda _cell: built)
    monkeypatch.setattr("runners.sweep.cell.clock_for", lambda _device: host)
    monkeypatch.setattr("measure.timing.blocks.disturbance", host.disturbance)
    monkeypatch.setattr("measure.timing.blocks.round_trip", host.round_trip)
    scene = Scene(folder / "run", monkeypatch)
    scene.answers[MEASURE] = lambda cell, _protocol: measured(cell, protocol)
    list(scene.rows([cell("synthetic_convolution", methods=("exact",))]))
    data = read_run(scene.path)
    (run,) = data.runs
    run = dataclasses.replace(run, duration_s=None)  # of the real clock
    evidence = Evidence(dataclasses.replace(data, runs=[run]))
    (samples,) = data.by_cell(Sample).values()
    asked = [gate for gate in GATES if gate.name in JUDGED]
    assert {verdict.gate: verdict.found for verdict in judge(evidence, asked) if verdict.verdict == "fail"} == {}
    return Found(run, tuple(samples), step_times(run, samples)[0])


def measured(of: Any, protocol: Protocol) -> Any:
    before = torch.get_float32_matmul_precision()
    try:
        return sweep_cell.measure(of, protocol)
    finally:
        torch.set_float32_matmul_precision(before)


def test_blocks_at_the_beginning_and_in_the_middle_are_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far in blocks 0, 4 and 5; in 1 and 6 the processors moved back, in 4 away; in 8 it waited. Twelve others."""
    found = swept(tmp_path, monkeypatch, PlannedHost(far=(0, 4, 5), waited=(8,)), min_blocks=12)
    assert found.parts == "..mm...mdmmmmmmmmm"
    assert (found.run.status, found.run.reason) == ("ok", "")
    assert found.run.window_start_s == found.numbered(2).start_s
    assert found.run.window_end_s == pytest.approx(found.numbered(-1).start_s + STEPS * NEAR_S)
    row = found.time
    assert (row.blocks, row.moved_blocks, row.disturbed_blocks, row.steps) == (12, 5, 1, 12 * STEPS)
    assert (row.mean_s, row.core_round_trip_s) == (pytest.approx(NEAR_S), 1e-7)
    moved_s, waited_s = 3 * FAR_S + 2 * NEAR_S, NEAR_S + WAIT_S
    assert row.all_mean_s == pytest.approx((12 * NEAR_S + moved_s + waited_s) / 18)
    assert sorted(warning.partition(":")[0] for warning in found.run.warnings if warning[0] in "dm") == [
        "disturbed",
        "moved",
    ]


def test_where_the_processors_never_stay_all_blocks_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They move in every block: no block is of a placement but the first."""
    found = swept(tmp_path, monkeypatch, PlannedHost(far=range(0, 100, 2), waited=()), min_blocks=8)
    assert found.parts == "m" * 8
    assert found.run.status == "ok"
    assert (found.time.blocks, found.time.moved_blocks, found.time.all_mean_s) == (8, 0, None)
    assert found.time.mean_s == pytest.approx((NEAR_S + FAR_S) / 2)
