"""Injected fault: outputs that are closed, full or of few letters; damaged, endless or hostile CSV, JSON and TOML.

A process of its own writes the outputs, as a shell starts it. Each faulty file is a ValueError in one line.
"""

import gzip
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from results.records.answers import Utilization
from results.store.layout import read_records
from results.text_files import csv_table, json_value, read_text, toml_tables
from runners import ceiling as command

ROOT = Path(__file__).parents[3]
CODE = "import sys\nfrom runners.cli.exits import exit_code, guarded\n"
CODE += "def main():\n    print('β × 3', file=sys.stderr)\n    print('α – 2')\n    return 0\n"


def shell(redirection: str, encoding: str = "utf-8", code: str = CODE + "sys.exit(exit_code(main))") -> tuple:
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *words],
        cwd=ROOT,
        capture_output=True,
        env={"PYTHONIOENCODING": encoding, "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_letters_that_an_output_lacks_are_written_out():
    assert shell("", "ascii") == (0, b"\\u03b1 \\u2013 2\n", b"\\u03b2 \\xd7 3\n")
    assert shell("", "latin-1") == (0, b"\\u03b1 \\u2013 2\n", b"\\u03b2 \xd7 3\n")
    assert shell("") == (0, "α – 2\n".encode(), "β × 3\n".encode())


def test_a_full_output_is_exit_code_3_and_a_line():
    code, _, said = shell("> /dev/full")
    assert code == 3
    assert said.decode() == "β × 3\nerror: the output could not be written: No space left on device\n"


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-"])
def test_a_stderr_that_takes_nothing_stops_nothing(redirection):
    assert shell(redirection) == (0, "α – 2\n".encode(), b"")


def test_names_in_tables_and_json_do_not_steer_a_terminal():
    """Colours stay; into a pipe goes what was written."""
    name = "\x1b]0;title\x07\x9b2J\u202eGNP\0"
    code = CODE.replace("'α – 2'", f"'\x1b[1mbold\x1b[0m ' + {name!r}") + "sys.exit(exit_code(main))"
    assert shell("", code=code)[1].decode() == f"\x1b[1mbold\x1b[0m {name}\n"
    ours, theirs = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=theirs, stderr=subprocess.DEVNULL, timeout=60)
        shown = os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown == "\x1b[1mbold\x1b[0m \\x1b]0;title\\x07\\x9b2J\\u202eGNP\\x00\r\n"


DEEP = "[" * 100_000


@pytest.mark.parametrize("read", [json_value, toml_tables])
def test_brackets_without_end_are_refused(read):
    text = DEEP if read is json_value else f"a = {DEEP}"
    with pytest.raises(ValueError, match="nested too deeply"):
        read(text)


@pytest.mark.parametrize(
    "content", [gzip.compress(b"a" * 1000, mtime=0)[:-9], gzip.compress(b"a", mtime=0)[:5], b"\x1f\x8bnothing", b"\xff"]
)
def test_damage_is_a_value_error(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged gzip|can't decode byte"):
        read_text(tmp_path / "a")


READERS = {
    "ceilings": ("ceilings.csv", command.read_ceilings),
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
    with pytest.raises(ValueError, match="is not a regular file"):
        read(tmp_path / name)


@pytest.mark.parametrize("row", ["1", "1,2,3"])
def test_a_row_of_another_width_is_refused(row):
    with pytest.raises(ValueError, match=rf"row 2: expected 2 fields, got {row.count(',') + 1}"):
        csv_table(f"a,b\n1,2\n{row}\n")
