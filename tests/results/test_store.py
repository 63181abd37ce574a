"""Law, injected fault: what is committed is read back, attempts are counted, and a refused commit changes nothing."""

import dataclasses
import errno
import hashlib
import os
import re
import subprocess
import sys

import pytest

from results.records.rows import header
from results.store.store import FAILED, Store, read_run
from tests.support.made_up.made_up_runs import (
    MANIFEST,
    SESSION,
    Failing,
    Unsynced,
    a_run,
    flop_count,
    new_store,
    rows_of,
    run_of,
    samples,
)

# What is kept


def test_what_is_committed_is_read_back(tmp_path):
    data = read_run(run_of(tmp_path / "run"))
    assert [(run.cell_id, run.attempt, run.status) for run in data.runs] == [("a", 1, "ok"), ("b", 1, "ok")]
    assert data.problems == []
    assert data.sessions == [SESSION]
    assert data.manifest == MANIFEST
    assert list(data.samples.columns) == list(header(samples("a")[0].__class__))
    expected = [row.wall_s for row in samples("a") + samples("b")]
    assert list(data.samples["wall_s"]) == expected
    assert list(data.telemetry["sm_clock_hz"]) == [1_410_000_000, 1_410_000_001] * 2
    assert list(data.flop_counts["flop"]) == [2**53 + 1] * 2  # the first integer that a float cannot hold


def test_committed_holds_rows_and_the_checksum_of_their_bytes(tmp_path):
    path = run_of(tmp_path / "run")
    lines = (path / "samples.csv").read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 3 + 3
    by_hand = hashlib.sha256(lines[0] + b"".join(lines[4:7])).hexdigest()[:16]  # header, three rows of a, those of b
    assert read_run(path).runs[1].committed["samples.csv"] == [3, by_hand]
    assert set(read_run(path).runs[1].committed) == {
        "samples.csv",
        "telemetry.csv",
        "flop_counts.csv",
        "sessions.csv",  # those that there were
    }


# Attempts and resuming


def test_the_last_attempt_counts_and_older_ones_are_listed(tmp_path):
    with new_store(tmp_path / "run") as store:
        store.commit(a_run("a", 1, "interrupted"), {"samples.csv": samples("a", 1, 5)})
        store.commit(a_run("b", 1), rows_of("b"))
        store.commit(a_run("a", 2), {"samples.csv": samples("a", 2, 2)})
    data = read_run(tmp_path / "run")
    assert [(run.cell_id, run.attempt) for run in data.runs] == [("b", 1), ("a", 2)]
    assert [(run.cell_id, run.attempt) for run in data.all_runs] == [("a", 1), ("b", 1), ("a", 2)]
    assert data.samples[data.samples["cell_id"] == "a"]["attempt"].tolist() == [2, 2]
    assert data.problems == []


def test_which_cells_need_no_more_measuring(tmp_path):
    kept = ("ok", "not_converged", "unavailable", "invalid")
    with new_store(tmp_path / "run") as store:
        for status in (*kept, *FAILED, "interrupted"):
            store.commit(a_run(status, status=status), {})
        store.commit(a_run("twice", 1, "crashed"), {})
        store.commit(a_run("twice", 2, "ok"), {})
        before = store.done()
    with Store.resume(tmp_path / "run") as store:
        assert store.done() == before == {status: status for status in (*kept, *FAILED)} | {"twice": "ok"}
        assert store.done(retry_failed=True) == {status: status for status in kept} | {"twice": "ok"}
        assert "not_converged" not in store.done(retry_unconverged=True)
        assert set(store.done()) - set(store.done(True, True)) == {"not_converged", *FAILED}
        assert set(FAILED) == {"out_of_memory", "timeout", "device_error", "crashed"}
        assert store.next_attempt("twice") == 3
        assert store.next_attempt("never") == 1


def test_a_cell_of_which_a_work_failed_is_retried_with_those_that_failed(tmp_path):
    """Until it has all its works."""
    with new_store(tmp_path / "run") as store:
        store.commit(a_run("whole"), {})
        store.commit(dataclasses.replace(a_run("part"), unprofiled={"one": "the worker died"}), {})
        assert store.done() == {"whole": "ok", "part": "ok"}
        assert store.done(retry_failed=True) == {"whole": "ok"}
    with Store.resume(tmp_path / "run") as store:
        assert store.done(retry_failed=True) == {"whole": "ok"}
        store.commit(a_run("part", 2), {})
        assert store.done(retry_failed=True) == {"whole": "ok", "part": "ok"}


def test_rows_of_a_killed_attempt_are_not_those_of_the_next(tmp_path):
    path = run_of(tmp_path / "run")
    with (path / "telemetry.csv").open("ab") as file:  # a writer died between the rows and their commit
        file.write(b"c,4,0.5,,,,,,,\na,7,0.5,,,,,,,\n")
    with Store.resume(path) as store:
        assert "c" not in store.done()
        assert store.next_attempt("c") == 5
        assert store.next_attempt("a") == 8, "above the committed attempt 1 and the orphan"
        with pytest.raises(ValueError, match="attempt 4 of cell c is used, the next is 5"):
            store.commit(a_run("c", 4), {})
        store.commit(a_run("c", 5), rows_of("c", 5))
    data = read_run(path)
    assert data.telemetry[data.telemetry["cell_id"] == "c"]["attempt"].tolist() == [5, 5]
    assert data.problems == ["telemetry.csv: 2 rows are not committed, left out"]


# The caller's mistakes, before anything is written


def mistakes():
    return {
        "attempt 0": (a_run("a", 0), {}, "attempt 0 of cell a is used, the next is 1"),
        "a trace": (a_run("a", trace_id="t"), {}, "expected a trace that was written, got 't'"),
        "a float": (a_run("a"), {"flop_counts.csv": [flop_count("a", flop=1.5)]}, "FlopCount.flop: expected int"),
        "a bad run": (a_run("a", parameters=1.5), rows_of("a"), "Run.parameters: expected int"),
    }


@pytest.mark.parametrize("name", mistakes())
def test_a_mistake_changes_nothing(tmp_path, name):
    run, rows, message = mistakes()[name]
    with new_store(tmp_path / "run") as store:
        before = {file: file.read_bytes() for file in store.path.iterdir()}
        with pytest.raises(ValueError, match=message):
            store.commit(run, rows)
        assert {file: file.read_bytes() for file in store.path.iterdir()} == before


# Opening


def test_a_run_that_was_begun_while_we_waited_for_the_lock_is_not_overwritten(tmp_path):
    class Overtaken(Unsynced):
        """Another sweep begins and ends its run just before our lock file is opened."""

        def open(self, path, flags):
            if path.name == ".lock":
                run_of(path.parent)
            return super().open(path, flags)

    with pytest.raises(ValueError, match="holds a run already"):
        Store.create(tmp_path / "run", dataclasses.replace(MANIFEST, name="late"), Overtaken())
    assert read_run(tmp_path / "run").manifest == MANIFEST
    Store.resume(tmp_path / "run").close()


@pytest.mark.parametrize("opening", [Store.resume, read_run], ids=["resume", "read"])
def test_what_is_no_run(tmp_path, opening):
    (tmp_path / "notes.txt").write_text("x")
    reasons = {"": "has no manifest.json", "absent": "does not exist", "notes.txt": "is not a directory"}
    for name, reason in reasons.items():
        expected = f"expected the directory of a run, got {tmp_path / name}, which {reason}"
        with pytest.raises(ValueError, match=re.escape(expected)):
            opening(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}, "nothing was left in a directory that is no run"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_an_unwritable_directory_is_a_mistake(tmp_path, code, call):
    disk = Failing(code, (call,))
    disk.broken = True
    path = tmp_path / "deep" / "run"
    with pytest.raises(ValueError, match=rf"expected a directory that can be written, got {re.escape(str(path))}: "):
        Store.create(path, MANIFEST, disk)


def test_a_second_sweep_is_refused_by_pid(tmp_path):
    first = new_store(tmp_path / "run")
    message = rf"is being written by another sweep \(pid {os.getpid()} on "
    with pytest.raises(ValueError, match=message):
        Store.resume(tmp_path / "run")
    code = "import sys; from results.store.store import Store; Store.resume(sys.argv[1])"
    other = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True)
    assert re.search(message, other.stderr), "another process is told so too"
    read_run(tmp_path / "run")  # reading needs no lock
    first.close()
    Store.resume(tmp_path / "run").close()


def test_a_directory_with_other_things_is_not_taken(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=r"expected a new or empty directory, .* which holds notes\.txt"):
        Store.create(tmp_path, MANIFEST)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}
    with pytest.raises(ValueError, match="expected a directory for the run, got the file"):
        Store.create(tmp_path / "notes.txt", MANIFEST)
    with pytest.raises(ValueError, match=r"expected a directory that can be written, got .*run: Not a directory"):
        Store.create(tmp_path / "notes.txt" / "run", MANIFEST)
