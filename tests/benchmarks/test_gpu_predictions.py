"""The predictions of the suite gpu: one for each of its cells, in order with their bounds."""

from benchmarks.gpu.predictions import DEVICE, FILE, suite_cells
from results.records.rows import cell_text
from results.text_files import csv_table, read_text

KEY = ("device", "model", "batch_size", "precision", "layout", "compile")


def test_each_cell_of_the_suite_has_one_row_and_bound_low_time_and_high_are_in_order() -> None:
    names, rows = csv_table(read_text(FILE))
    predictions = [dict(zip(names, row, strict=True)) for row in rows]
    assert [tuple(row[name] for name in KEY) for row in predictions] == [
        (DEVICE, *(cell_text(getattr(cell, name)) for name in KEY[1:])) for cell in suite_cells()
    ]
    for row in predictions:
        assert bool(row["reason"]) == (not row["step_time_s"])
        known = [float(row[name]) for name in ("bound_time_s", "low_90_s", "step_time_s", "high_90_s") if row[name]]
        assert known == sorted(known)
        assert len(known) == (1 if row["reason"] else 4)
    assert len({row["commit"] for row in predictions}) == 1
