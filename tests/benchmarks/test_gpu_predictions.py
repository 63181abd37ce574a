"""Law: the predictions of the suite gpu have one row for each of its cells, with bounds and times in order."""

from benchmarks.gpu.predictions import DEVICE, FILE, suite_cells
from reports.sweep.predictions import KEY, read_predictions
from results.records.rows import cell_text


def test_each_cell_of_the_suite_has_one_row_and_bound_low_time_and_high_are_in_order() -> None:
    predictions = read_predictions(FILE)
    assert set(predictions) == {
        (DEVICE, *(cell_text(getattr(cell, name)) for name in KEY[1:])) for cell in suite_cells()
    }
    for row in predictions.values():
        assert bool(row["reason"]) == (row["step_time_s"] is None)
        times_s = [row[name] for name in ("bound_time_s", "low_90_s", "step_time_s", "high_90_s")]
        known = [time_s for time_s in times_s if time_s is not None]
        assert known == sorted(known)
        assert len(known) == (1 if row["reason"] else 4)
    assert len({row["commit"] for row in predictions.values()}) == 1
