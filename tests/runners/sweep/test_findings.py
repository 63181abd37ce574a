"""Law: what a worker finds of a cell fills all of its row but what was known before, and passes join in order."""

import dataclasses

from results.records.cell import Cell, Run, Sample
from results.records.rows import header
from runners.sweep.findings import WORKER_COLUMNS, CellMeasurement, PassFindings, PassRecording, blank_run

CELL = Cell(model="resnet18", batch_size=2, device="cpu", precision="amp-bf16")


def test_measuring_finds_all_of_a_row_but_what_was_asked_for_and_when():
    known = {"cell_id", "attempt", "session", "started_at", "duration_s", "trace_id"}
    known |= {"convolution_unit", "matmul_unit"}
    assert {*WORKER_COLUMNS} == {*header(Run)} - {*header(Cell)} - known


def test_works_are_joined_in_their_order_and_a_warning_is_said_once():
    blocks = [Sample(part="measure", steps=1, start_s=float(i), wall_s=1.0) for i in range(3)]
    recording = PassRecording(b"x", "nsys profile")
    works = PassFindings([blocks[1]], [], ["a"], ["one"], {}, {"one": recording})
    works.add(PassFindings([blocks[2]], [], ["a", "b"], [], {"last": "no memory"}))
    run = blank_run(CELL, "not_converged", reason="wide", warnings=("c",), parameters=5)
    whole = CellMeasurement(run, (blocks[0],)).with_passes(works)
    assert whole.blocks == tuple(blocks)
    assert whole.recordings == {"one": recording}
    assert whole.run == dataclasses.replace(
        run, warnings=("c", "a", "b"), profiled=("one",), unprofiled={"last": "no memory"}
    )
