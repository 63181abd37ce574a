"""Injected fault, law: what is read and resumed of a run with damaged, torn, lost, older or newer files."""

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from results.records.rows import SCHEMA_VERSION
from results.store.layout import decode
from results.store.manifest import read_manifest
from results.store.store import Store, read_run
from tests.support.made_up.checksums import recompute_checksums
from tests.support.made_up.made_up_runs import SESSION, a_run, ceiling, new_store, rows_of, run_of, samples


def corrupt(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes that are in a file once."""
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


# Damage, and the reader


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (b"a,1,1,", b"a,1,7,", "a"),
        (b"b,1,2,", b"a,1,2,", "b"),
        (b"a,1,2,", b"a\nx,1,2,", "a"),
        (b"b,1,0,", b'b,1,"0,', "b"),
    ],
)
def test_rows_whose_checksum_fails_are_refused(tmp_path, old, new, named):
    path = run_of(tmp_path / "run", ("a", "b", "c"))
    corrupt(path / "samples.csv", old, new)
    data = read_run(path)
    assert f"attempt 1 of cell {named} left out: not what was committed in samples.csv" in data.problems
    assert named not in [run.cell_id for run in data.runs]
    assert named not in set(data.samples["cell_id"]) | set(data.telemetry["cell_id"]) | set(data.flop_counts["cell_id"])
    assert "c" in [run.cell_id for run in data.runs]
    assert len(data.all_runs) == 3
    with Store.resume(path) as store:
        assert named not in store.done(), "it is measured again"
        assert store.next_attempt(named) == 2


def test_a_file_that_is_gone_takes_its_cells_with_it(tmp_path):
    path = run_of(tmp_path / "run")
    (path / "telemetry.csv").unlink()
    assert read_run(path).runs == []
    with Store.resume(path) as store:
        assert store.done() == {}


def test_every_torn_length_of_every_file_is_read_and_resumed(tmp_path):
    """Cut each file at each byte: never a crash, never a torn row, and the store goes on from there."""
    path = run_of(tmp_path / "run", ("a",))
    whole = set(map(tuple, read_run(path).samples.astype(str).to_numpy().tolist()))
    for file in ("samples.csv", "runs.csv"):
        data = (path / file).read_bytes()
        for size in range(0, len(data), 7):
            (path / file).write_bytes(data[:size])
            found = read_run(path)
            assert set(map(tuple, found.samples.astype(str).to_numpy().tolist())) in (whole, set())
            assert (len(found.runs) == 1) == (size == len(data))
        (path / file).write_bytes(data[: len(data) // 2])
        with Store.resume(path) as store:
            attempt = store.next_attempt("a")
            store.commit(a_run("a", attempt), rows_of("a", attempt))
        assert [run.attempt for run in read_run(path).runs] == [attempt]


@pytest.mark.parametrize("line", [b"x,y\n", b'"\n', b"\n", b"\xff\xfe,1\n", b"," * 44 + b"\n"])
def test_a_line_of_runs_that_cannot_be_read_is_named(tmp_path, line):
    path = run_of(tmp_path / "run")
    with (path / "runs.csv").open("ab") as stream:
        stream.write(line)
    data = read_run(path)
    assert len(data.runs) == 2
    assert len(data.problems) == 1
    assert data.problems[0].startswith("runs.csv, line 4: left out, ")


def test_a_commit_that_is_there_twice_counts_once(tmp_path):
    path = run_of(tmp_path / "run", ("a",))
    lines = (path / "runs.csv").read_bytes().splitlines(keepends=True)
    (path / "runs.csv").write_bytes(b"".join([*lines, lines[1]]))
    data = read_run(path)
    assert (len(data.runs), len(data.all_runs)) == (1, 1)
    assert [problem.split(",")[:2] for problem in data.problems] == [["runs.csv", " line 3: left out"]]
    recompute_checksums(path)
    data = read_run(path)
    assert (len(data.runs), len(data.all_runs)) == (1, 1)
    assert data.problems == ["runs.csv: attempt 1 of cell a again, left out"]


# Versions of the schema


def as_older(path: Path, version: int) -> None:
    """The run as version 6 or 8 wrote it: with the names of then, in 6 without the columns that came later."""
    document = json.loads((path / "manifest.json").read_text())
    del document["checksum"]
    (path / "manifest.json").write_text(json.dumps({**document, "schema_version": version}))
    (path / "sessions.csv").rename(path / "sittings.csv")
    for file in ("runs.csv", "sittings.csv", "ceilings.csv"):
        header, _, body = (path / file).read_bytes().partition(b"\n")
        older = header.replace(b"session", b"sitting").replace(b"checksum", b"seal")
        (path / file).write_bytes(older + b"\n" + body.replace(b"sessions.csv", b"sittings.csv"))
    later = {"threads", "wait_policy", "first_step_s"} if version == 6 else set()
    rows = decode((path / "runs.csv").read_bytes().splitlines())
    kept = [position for position, name in enumerate(rows[0]) if name not in later]
    assert len(kept) == len(rows[0]) - len(later)
    with (path / "runs.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([row[position] for position in kept] for row in rows)
    recompute_checksums(path)


@pytest.mark.parametrize("version", [6, 8])
def test_an_older_run_is_resumed_with_what_it_has(tmp_path, version):
    path = tmp_path / "run"
    with new_store(path) as store:
        store.append_ceilings([ceiling(1e12)])
        store.commit(a_run("a"), rows_of("a"))
        store.commit(a_run("b"), rows_of("b"))
    as_older(path, version)
    old = read_run(path)
    assert (old.problems, old.unchecked) == ([], ())
    for name in ("s8", "s9"):  # twice: the second time its manifest is of this version
        with Store.resume(path) as store:
            assert store.done() == {run.cell_id: "ok" for run in read_run(path).runs}
            store.append_session(dataclasses.replace(SESSION, session=name))
            store.append_ceilings([ceiling(2e12)])
            store.commit(dataclasses.replace(a_run(name), threads=2, first_step_s=0.5), rows_of(name))
    data = read_run(path)
    assert (data.problems, data.unchecked) == ([], ())
    assert (old.manifest.schema_version, data.manifest.schema_version) == (version, SCHEMA_VERSION)
    assert data.runs[:2] == old.runs
    assert [(run.threads, run.first_step_s) for run in data.runs[1:]] == [(None, None), (2, 0.5), (2, 0.5)]
    assert [row.session for row in data.sessions] == [old.sessions[0].session, "s8", "s9"]
    assert [row.flop_per_s for row in data.ceilings] == [1e12, 2e12, 2e12]
    corrupt(path / "sittings.csv", b"\ns8,", b"\ns7,")
    assert read_run(path).problems[0].startswith("sessions.csv, line 3: left out, not as it was written")


def of_version(path: Path, version: int) -> None:
    document = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**document, "schema_version": version}))


def test_a_newer_schema_is_refused_in_one_line(tmp_path):
    path = run_of(tmp_path / "run")
    of_version(path, SCHEMA_VERSION + 1)
    said = f"has schema version {SCHEMA_VERSION + 1}, this program reads up to {SCHEMA_VERSION}"
    for opening in (read_run, Store.resume, read_manifest):
        with pytest.raises(ValueError, match=said) as caught:
            opening(path)
        assert "\n" not in str(caught.value)


def test_a_run_with_other_columns_is_read_but_not_appended_to(tmp_path):
    """Within one version a column may be added: older files lack it."""
    path = run_of(tmp_path / "run")
    corrupt(path / "samples.csv", b",device_s,", b",of_the_future_s,")
    recompute_checksums(path)
    data = read_run(path)
    assert sorted(data.problems) == [
        "samples.csv: column device_s is missing, taken as its default",
        "samples.csv: column of_the_future_s is unknown and was left out",
    ]
    assert data.samples["device_s"].isna().all()
    before = (path / "samples.csv").read_bytes()
    with pytest.raises(ValueError, match=r"samples\.csv was written with other columns"):
        Store.resume(path)
    assert (path / "samples.csv").read_bytes() == before


def test_a_column_that_must_be_there(tmp_path):
    path = run_of(tmp_path / "run")
    corrupt(path / "samples.csv", b",wall_s,", b",wall_ms,")
    recompute_checksums(path)
    with pytest.raises(ValueError, match=r"samples\.csv: column wall_s is missing"):
        read_run(path)


def test_an_older_intact_attempt_does_not_stand_in_for_a_damaged_one(tmp_path):
    with new_store(tmp_path / "run") as store:
        store.commit(a_run("a", 1), {"samples.csv": samples("a", 1)})
        store.commit(a_run("a", 2), {"samples.csv": samples("a", 2)})
    corrupt(tmp_path / "run" / "samples.csv", b"a,2,1,", b"a,2,9,")
    data = read_run(tmp_path / "run")
    assert (data.runs, len(data.samples)) == ([], 0)
