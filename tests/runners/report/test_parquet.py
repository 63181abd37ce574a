"""`runners.report RUN --parquet`: the same tables with their types, and one line where pyarrow is missing."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reports.sweep.answer import parquet as answer_parquet
from reports.sweep.answer.table import to_csv
from results.records.rows import Record
from runners.report import command
from runners.report.derived import parquet_tables
from tests.support.made_up import made_up_page


@dataclass(frozen=True)
class Row(Record):
    name: str
    whole: int | None = None
    share: float | None = None
    fine: bool | None = None
    parts: tuple[str, ...] = ()


def test_without_pyarrow_it_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as left:
        command.main([str(tmp_path), "--parquet"])
    out, err = capsys.readouterr()
    assert (left.value.code, out, err.count("\n")) == (2, "", 1)
    assert "pip install -r requirements-parquet.txt" in err


def test_of_two_runs_or_a_check_there_are_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([str(tmp_path)], ["--check"]):
        with pytest.raises(SystemExit) as left:
            command.main([str(tmp_path), *more, "--parquet"])
        assert left.value.code == 2
        assert "--parquet: expected one run" in capsys.readouterr().err


def read(content: bytes) -> Any:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    return parquet.read_table(io.BytesIO(content))


def test_columns_have_the_types_of_their_fields_and_unknown_is_null() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rows = (Row("=1+1", 2**62, 0.5, True, ("a", "b")), Row("b"))
    table = read(answer_parquet.to_parquet(rows, Row))
    assert [str(kind) for kind in table.schema.types] == ["string", "int64", "double", "bool", "string"]
    assert table.to_pylist() == [
        {"name": "=1+1", "whole": 2**62, "share": 0.5, "fine": True, "parts": '["a","b"]'},
        {"name": "b", "whole": None, "share": None, "fine": None, "parts": "[]"},
    ]


def test_a_number_beyond_64_bits_is_text_and_no_other_number() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = read(answer_parquet.to_parquet((Row("a", 2**64), Row("b", 1)), Row))
    assert table.column("whole").to_pylist() == [str(2**64), "1"]


def test_each_table_of_a_run_has_the_rows_and_columns_of_its_csv_file() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from reports.sweep.answer.headline_table import headline_rows
    from results.records.answers import Headline

    suite = made_up_page.suite(("resnet18",), (1, 64), ("fp32",))
    found = dict(parquet_tables(suite))
    table = read(found["headline.parquet"])
    text = to_csv(headline_rows(suite), Headline).splitlines()
    assert table.column_names == text[0].split(",")
    assert table.num_rows == len(text) - 1 == 2
    assert {"utilization.parquet", "step_times.parquet", "cleaned/ratios.parquet"} <= set(found)
