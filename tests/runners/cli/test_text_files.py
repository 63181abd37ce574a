"""Damaged, endless and hostile tables, JSON and TOML: a ValueError in one line, by the reader and by each command."""

from __future__ import annotations

import gzip
import os

import pytest

from results.records.answers import Utilization
from results.store.columns import read_records
from results.text_files import csv_lines, csv_rows, json_value, read_text, toml_tables
from runners.ceiling import output
from runners.report.check import self_test_of

DEEP = "[" * 100_000


def test_a_table_has_the_names_of_its_first_line():
    assert csv_rows('a,b\r\n1,"x\u2028y"\r\n\r\n2,\r\n') == [{"a": "1", "b": "x\u2028y"}, {"a": "2", "b": ""}]
    assert csv_rows("") == csv_rows("a,b\n") == []
    assert csv_lines("a\n\nb") == [["a"], [], ["b"]]


@pytest.mark.parametrize("row", ["1", "1,2,3"])
def test_a_row_of_another_width_is_refused(row):
    with pytest.raises(ValueError, match=rf"row 2: expected 2 fields, got {row.count(',') + 1}"):
        csv_rows(f"a,b\n1,2\n{row}\n")


@pytest.mark.parametrize("read", [json_value, toml_tables])
def test_brackets_without_end_are_refused(read):
    text = DEEP if read is json_value else f"a = {DEEP}"
    with pytest.raises(ValueError, match="nested too deeply"):
        read(text)


def test_gzip_is_known_by_its_first_bytes_and_its_size_is_limited(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"a,b\n" * 10_000))
    assert read_text(tmp_path / "a.csv") == "a,b\n" * 10_000
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=1000")
    with pytest.raises(ValueError, match="memory_bytes=N raises the limit"):
        read_text(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "content", [gzip.compress(b"a" * 1000, mtime=0)[:-9], gzip.compress(b"a", mtime=0)[:5], b"\x1f\x8bnothing", b"\xff"]
)
def test_damage_is_a_value_error(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged gzip|can't decode byte"):
        read_text(tmp_path / "a")


READERS = {
    "ceilings": ("ceilings.csv", output.read),
    "utilization": ("utilization.csv", lambda path: read_records(path, Utilization)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(b"0" * 10**6),
        b"a,b\n" + b"1" * 2**18 + b"\n",
        f"{DEEP}\n1\n".encode(),
        b'a,b\n1,"2\r',
        b"a\0b,c\n1,2\n",
        b"\xff\xfe",
    ],
    ids=["bomb", "long field", "deep", "open quote", "NUL", "no UTF-8"],
)
def test_each_reader_refuses_in_one_line(tmp_path, monkeypatch, reader, content):
    name, read = READERS[reader]
    (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=500000")
    with pytest.raises(ValueError) as fault:  # noqa: PT011  each has words of its own
        read(tmp_path / name)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_pipe(tmp_path, reader):
    name, read = READERS[reader]
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="is no regular file"):
        read(tmp_path / name)


def test_a_self_test_without_end_is_told_in_words(tmp_path):
    (tmp_path / "self_test.json").write_text(DEEP)
    assert self_test_of(tmp_path) == "cannot be read: JSON that is nested too deeply"
