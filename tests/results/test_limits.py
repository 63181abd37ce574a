"""Injected fault, definition: what may be unpacked and opened, up to which limits, and which commit the code is.

runs.csv names the files that a cell committed; a name that is none of a run's own is not opened.
"""

import dataclasses
import gzip
import io
import os
import re
import subprocess
from pathlib import Path

import pytest

from results.store.manifest import commit_of
from results.store.store import read_run
from results.text_files import LIMITS, BoundedStream, stated, unpack
from tests.support.made_up.made_up_runs import a_run, new_store, rows_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("database_secs=1", "nearest database_seconds"),
        ("database_seconds", "positive number for database_seconds, got ''"),
        ("database_seconds=0", "got '0'"),
        ("database_seconds=many", "got 'many'"),
        ("database_seconds=inf", "got 'inf'"),
        ("database_seconds=nan", "got 'nan'"),
    ],
)
def test_what_cannot_be_a_limit_is_refused(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        stated(text)


def test_the_page_on_security_has_every_limit():
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(name, f"{most:,}", what) for name, (most, what) in LIMITS.items()]


def test_what_is_packed_is_unpacked_to_its_limit(monkeypatch):
    content = os.urandom(1000) * 3
    packed = gzip.compress(content) + gzip.compress(b"more")
    assert unpack(packed) == content + b"more"
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=3004")
    assert unpack(packed) == content + b"more"
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=3003")
    with pytest.raises(ValueError, match="memory_bytes=N raises the limit"):
        unpack(packed)


def test_a_bomb_takes_no_memory(monkeypatch):
    import tracemalloc

    bomb = gzip.compress(bytes(200_000_000))
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "memory_bytes=5e6")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="memory_bytes"):
            unpack(bomb)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_stream_ends_at_its_limit(monkeypatch):
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "unpacked_bytes=10")
    assert io.BufferedReader(BoundedStream(io.BytesIO(b"0123456789"), "a.gz")).read() == b"0123456789"
    with pytest.raises(ValueError, match=r"a\.gz: unpacked: more than 10"):
        io.BufferedReader(BoundedStream(io.BytesIO(b"0123456789a"), "a.gz")).read()


@pytest.mark.parametrize(
    "file",
    [
        "/dev/zero",
        "../../../etc/shadow",
        "/etc/passwd",
        "profiles/../../secret",
        "operations/fifo.csv.gz",
        "",
        "samples",
    ],
)
def test_no_other_file_is_opened(tmp_path, file, monkeypatch):
    path = tmp_path / "run"
    (tmp_path / "secret").write_text("secret")
    # a run whose only cell says that it committed `file`
    with new_store(path) as store:
        store.commit(dataclasses.replace(a_run("a"), committed={file: [1, "0" * 16]}), rows_of("a"))
    if "fifo" in file:
        (path / "operations").mkdir()
        os.mkfifo(path / "operations" / "fifo.csv.gz")
    opened = []
    reading = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: (opened.append(self.resolve()), reading(self))[1])
    data = read_run(path)
    if file.startswith("profiles/"):  # which costs what rests on it
        assert data.problems == [f"attempt 1 of cell a: {file} is not what was committed"]
    else:
        assert data.problems == [f"attempt 1 of cell a left out: not what was committed in {file}"]
        assert data.runs == []
    assert opened
    assert all(each.is_relative_to(path.resolve()) for each in opened)


@pytest.mark.parametrize("file", ["runs.csv", "samples.csv", "manifest.json", "sessions.csv"])
def test_a_pipe_or_a_device_in_a_run_is_refused(tmp_path, file):
    path = tmp_path / "run"
    with new_store(path) as store:
        store.commit(a_run("a"), rows_of("a"))
    (path / file).unlink()
    os.mkfifo(path / file)
    with pytest.raises(ValueError, match=f"{file} is not a regular file"):
        read_run(path)


COMMIT = "0123456789abcdef"


@pytest.fixture
def checkout(tmp_path):
    path = tmp_path / "checkout"
    (path / "runners").mkdir(parents=True)
    (path / "runners" / "a.py").write_text("a = 1\n")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        git(path, *words)
    return path


def git(path, *words):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(path), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_git_is_asked_before_the_variable(checkout, tmp_path):
    commit = "g" + git(checkout, "rev-parse", "HEAD")[:12]
    assert commit_of(checkout, {}) == commit_of(checkout, {"FLOPLEDGER_COMMIT": COMMIT}) == commit
    (checkout / "runners" / "a.py").write_text("a = 2\n")
    assert commit_of(checkout, {}) == f"{commit}.dirty"
    assert commit_of(tmp_path, {}) == ""
    assert commit_of(tmp_path, {"FLOPLEDGER_COMMIT": COMMIT}) == "g0123456789ab"
    with pytest.raises(ValueError, match="7 to 40 hex digits of a commit, got 'main'"):
        commit_of(tmp_path, {"FLOPLEDGER_COMMIT": "main"})
