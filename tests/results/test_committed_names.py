"""runs.csv names the files that a cell committed; a name that is none of a run's own is not opened."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from results.store import layout
from results.store.store import read_run
from tests.support.made_up.made_up_runs import a_run, new_store, rows_of


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


def test_every_name_that_a_store_writes_is_known():
    names = [*layout.CELL_FILES, *layout.operation_files("t-1"), layout.profile_file("a", 1)]
    for source in layout.RECORDING_ENDINGS:
        names += [layout.recording_file("a", 1, "epoch", source), layout.command_file("a", 1, "epoch", source)]
    assert all(map(layout.is_committed_name, names))
    assert not layout.is_committed_name(7)


@pytest.mark.parametrize("file", ["runs.csv", "samples.csv", "manifest.json", "sittings.csv"])
def test_a_pipe_or_a_device_in_a_run_is_refused(tmp_path, file):
    path = tmp_path / "run"
    with new_store(path) as store:
        store.commit(a_run("a"), rows_of("a"))
    (path / file).unlink()
    os.mkfifo(path / file)
    with pytest.raises(ValueError, match=f"{file} is no regular file"):
        read_run(path)
