"""What measuring finds of a cell goes into its row field by field, and nothing else of the row is touched."""

from __future__ import annotations

from results.records.cell import Cell
from results.records.samples import Sample
from runners.sweep.findings import (
    Attempt,
    CellFindings,
    CellMeasurement,
    CellOutcome,
    WorkFindings,
    WorkRecording,
    merge_findings,
)
from runners.workers.telemetry import WindowEnergy

CELL = Cell(model="resnet18", batch_size=2, device="cpu", precision="amp-bf16")


def attempt(**more: object) -> Attempt:
    return Attempt(cell=CELL, number=3, sitting="s1", started_at="2026-01-01T00:00:00Z", **more)


def test_everything_found_is_in_the_row():
    found = CellFindings(items_per_step=2, parameters=11, host_bound=True, profiled=("one",), unprofiled={"last": "no"})
    row = attempt(
        findings=found,
        energy=WindowEnergy(300.0, "polled", ("not of the row",)),
        trace_id="t",
        duration_s=1.5,
        convolution_unit="bf16",
        matmul_unit="fp32",
        committed={"a": [1, "b"]},
    ).run(CellOutcome("ok", warnings=("w",)))
    given = {"energy_j": 300.0, "energy_method": "polled", "trace_id": "t", "duration_s": 1.5, "warnings": ("w",)}
    given |= {"convolution_unit": "bf16", "matmul_unit": "fp32", "committed": {"a": [1, "b"]}}
    given |= {"items_per_step": 2, "parameters": 11, "host_bound": True, "profiled": ("one",)}
    given |= {"unprofiled": {"last": "no"}}
    assert {name: getattr(row, name) for name in given} == given


def test_works_are_joined_in_their_order_and_a_warning_is_said_once():
    blocks = [Sample(part="measure", steps=1, start_s=float(i), wall_s=1.0) for i in range(3)]
    recording = WorkRecording(b"x", "nsys profile")
    works = merge_findings(
        [
            WorkFindings([blocks[1]], [], ["a"], ["one"], {}, {"one": recording}),
            WorkFindings([blocks[2]], [], ["a", "b"], [], {"last": "no memory"}),
        ]
    )
    whole = CellMeasurement("not_converged", "wide", (blocks[0],), ("c",), CellFindings(parameters=5)).with_works(works)
    assert whole.blocks == tuple(blocks)
    assert whole.warnings == ("c", "a", "b")
    assert (whole.status, whole.reason, whole.recordings) == ("not_converged", "wide", {"one": recording})
    assert whole.findings == CellFindings(parameters=5, profiled=("one",), unprofiled={"last": "no memory"})
