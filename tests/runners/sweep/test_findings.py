"""What measuring finds of a cell goes into its row field by field, and nothing else of the row is touched."""

from results.records.cell import Cell, Run
from results.records.rows import header
from runners.sweep.findings import FOUND


def test_measuring_finds_all_of_a_row_but_what_was_asked_for_and_when():
    known = {"cell_id", "attempt", "sitting", "started_at", "duration_s", "trace_id"}
    known |= {"convolution_unit", "matmul_unit"}
    assert {*FOUND} == {*header(Run)} - {*header(Cell)} - known
