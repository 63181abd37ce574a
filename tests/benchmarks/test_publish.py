"""Law, injected fault: a published run has the rows and tables of the run; a changed table costs its attempts."""

import gzip
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.publish import publish
from cleaning.reconcile.run import build
from results.errors import Inconsistent
from results.store.reading import read_operation_table, read_run
from results.store.store import Store, read_operations, read_profile
from runners.rebuild import derived_tables
from tests.support.made_up import made_up_evidence
from tests.support.made_up.made_up_runs import MANIFEST, a_run, new_store, operations, rows_of, storages


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two cells with a trace each, of which only the first has two attempts, and one without."""
    with new_store(tmp_path / "run") as store:
        store.write_operations("t1", operations(), storages())
        store.write_operations("t2", operations(3), storages())
        store.commit(a_run("a", status="crashed"), {})
        store.commit(a_run("a", attempt=2, trace_id="t1"), rows_of("a", attempt=2))
        store.commit(a_run("b", trace_id="t2"), rows_of("b"))
        store.commit(a_run("c", committed=store.write_profile("c", 1, ())), rows_of("c"))
        store.replace_manifest(
            replace(MANIFEST, commands=(*MANIFEST.commands, "python -m runners.sweep --resume /tmp/some/where --retry"))
        )
    return tmp_path / "run"


def test_a_published_run_has_the_rows_and_tables_of_the_run(run: Path, tmp_path: Path) -> None:
    publish(run, tmp_path / "published")
    before, after = read_run(run), read_run(tmp_path / "published")
    assert after.problems == []
    assert {file: list(rows) for file, rows in after.rows.items()} == {f: list(r) for f, r in before.rows.items()}
    assert (after.sessions, after.ceilings) == (before.sessions, before.ceilings)
    assert [run.attempt for run in after.all_runs] == [1, 2, 1, 1]
    for trace_id in ("t1", "t2"):
        assert read_operations(tmp_path / "published", trace_id) == read_operations(run, trace_id)
    assert not (tmp_path / "published" / "operations").exists()
    assert {*after.runs[0].committed} - {*before.runs[0].committed} == {"operations.csv.gz", "storages.csv.gz"}
    assert (tmp_path / "published" / "profiles" / "c-1.csv.gz").exists()
    lines = gzip.decompress((tmp_path / "published" / "operations.csv.gz").read_bytes()).decode().splitlines()
    assert sorted(line.split(",")[0] for line in lines[1:]) == ["t1", "t1", "t2", "t2", "t2"]


def test_derived_tables_are_equal(tmp_path: Path) -> None:
    source, target = made_up_evidence.write(tmp_path / "run"), tmp_path / "published"
    publish(source, target)
    first, second = (
        dict(derived_tables(build(read_run(path), partial(read_operation_table, path), partial(read_profile, path))))
        for path in (source, target)
    )
    assert first == second


def test_a_table_that_was_changed_costs_its_attempts_and_is_named(run: Path, tmp_path: Path) -> None:
    publish(run, tmp_path / "published")
    file = tmp_path / "published" / "operations.csv.gz"
    read_operations(tmp_path / "published", "t1")
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(b"t2,2,", b"t2,9,")))
    data = read_run(tmp_path / "published")
    assert [run.cell_id for run in data.runs] == ["c"]
    assert "attempt 2 of cell a left out: not what was committed in operations.csv.gz" in data.problems
    assert [row.index for row in read_operation_table(tmp_path / "published", "t2")] == [0, 1, 9], "read again"
    file.write_bytes(b"no gzip")
    with pytest.raises(Inconsistent, match=r"operations\.csv\.gz: damaged gzip"):
        read_operations(tmp_path / "published", "t1")


def test_what_is_refused(run: Path, tmp_path: Path) -> None:
    publish(run, tmp_path / "published")
    with pytest.raises(ValueError, match="is a published run, whose operation tables are in one file"):
        Store.resume(tmp_path / "published")
    with pytest.raises(ValueError, match="holds a run already"):
        publish(run, tmp_path / "published")
    with pytest.raises(ValueError, match="it is a published run"):
        publish(tmp_path / "published", tmp_path / "again")
    (run / "samples.csv").write_text("")
    with pytest.raises(ValueError, match=r"expected a whole run, got .*left out: not what was committed"):
        publish(run, tmp_path / "other")
    assert not (tmp_path / "other").exists()
