"""Law: what each logger writes is read back by what its package reads with."""

import csv
from types import SimpleNamespace

import pytest

from flopledger.loggers import CsvLog, MlflowLog, TensorBoardLog, WandbLog

FIRST = {"flopledger/utilization_ratio": 0.25, "flopledger/step_time_s": 0.5}
SECOND = {"flopledger/utilization_ratio": 0.375}


def _written(log):
    with log:
        log.log(10, FIRST)
        log.log(20, SECOND)


def _rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_has_a_row_a_call_and_what_is_unknown_is_empty(tmp_path):
    _written(CsvLog(tmp_path / "log.csv"))
    rows = _rows(tmp_path / "log.csv")
    assert list(rows[0]) == ["step", "time_s", *FIRST]
    assert [row["step"] for row in rows] == ["10", "20"]
    assert [row["flopledger/utilization_ratio"] for row in rows] == ["0.25", "0.375"]
    assert [row["flopledger/step_time_s"] for row in rows] == ["0.5", ""]


def test_a_table_is_gone_on_with(tmp_path):
    _written(CsvLog(tmp_path / "log.csv"))
    _written(CsvLog(tmp_path / "log.csv"))
    assert [row["step"] for row in _rows(tmp_path / "log.csv")] == ["10", "20", "10", "20"]
    CsvLog(tmp_path / "log.csv").log(30, {"loss": 0.5})
    rows = _rows(tmp_path / "log.csv")
    assert list(rows[0]) == ["step", "time_s", *FIRST, "loss"]
    assert [row["step"] for row in rows] == ["10", "20", "10", "20", "30"]
    assert [row["loss"] for row in rows] == ["", "", "", "", "0.5"]
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_tensorboard_reads_the_scalars(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _written(TensorBoardLog(tmp_path))
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    (name, _) = FIRST
    assert [(each.step, each.value) for each in found.Scalars(name)] == [(10, 0.25), (20, 0.375)]


def test_weights_and_biases_gets_a_row_of_each_step():
    rows = []
    _written(WandbLog(SimpleNamespace(log=lambda values, step: rows.append((step, values)))))
    assert rows == [(10, FIRST), (20, SECOND)]


def test_mlflow_reads_the_metrics_from_its_files(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri=tmp_path.as_uri())
    run_id = client.create_run(client.create_experiment("e")).info.run_id
    _written(MlflowLog(run_id, client))
    (name, _) = FIRST
    assert [(each.step, each.value) for each in client.get_metric_history(run_id, name)] == [(10, 0.25), (20, 0.375)]
