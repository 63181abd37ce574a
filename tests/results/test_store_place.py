"""A store goes on only where it is alone: its lock is its own, and the manifest is there."""

import dataclasses
from collections.abc import Callable

import pytest

from results.errors import StoreFault
from results.store.manifest import read_manifest
from results.store.store import Store, read_run
from tests.support.made_up.made_up_runs import SITTING, a_run, ceiling, flop_count, new_store, rows_of

WRITES: dict[str, Callable[[Store], None]] = {
    "commit": lambda store: store.commit(a_run("b"), rows_of("b")),
    "ceilings": lambda store: store.append_ceilings([ceiling(1.0)]),
    "sitting": lambda store: store.append_sitting(dataclasses.replace(SITTING, sitting="s2")),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_removed_lock_ends_the_first_sweep(tmp_path, write):
    first = new_store(tmp_path / "run")
    first.commit(a_run("a"), rows_of("a"))
    (tmp_path / "run" / ".lock").unlink()
    with Store.resume(tmp_path / "run") as second:
        second.commit(a_run("b"), rows_of("b"))
        before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.csv")}
        with pytest.raises(StoreFault, match=r"its lock .* was removed or is another sweep's: this one ends"):
            WRITES[write](first)
        assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.csv")} == before
        second.commit(a_run("c"), rows_of("c"))
    first.close()
    assert [run.cell_id for run in read_run(tmp_path / "run").runs] == ["a", "b", "c"]


@pytest.mark.parametrize("status", ["crashed", "timeout", "out_of_memory", "device_error"])
def test_a_counter_that_failed_is_run_again(tmp_path, status):
    """Whether the same process asks, or a later one that reads the rows. The word in another column says nothing."""
    failed = {"flop_counts.csv": [flop_count("a", status=status, reason="the process died of SIGKILL")]}
    worded = {"flop_counts.csv": [flop_count("b", status="unavailable", reason=f"it {status}, said its author")]}
    with new_store(tmp_path / "run") as store:
        store.commit(a_run("a"), failed)
        store.commit(a_run("b"), worded)
        assert store.incomplete_cells == {"a"}
    with Store.resume(tmp_path / "run") as store:
        assert store.done() == {"a": "ok", "b": "ok"}
        assert store.done(retry_failed=True) == {"b": "ok"}
        store.commit(a_run("a", 2), rows_of("a", 2))
        assert store.done(retry_failed=True) == {"a": "ok", "b": "ok"}
    with Store.resume(tmp_path / "run") as store:
        assert store.incomplete_cells == set()


def test_a_removed_manifest_is_put_back(tmp_path):
    with new_store(tmp_path / "run") as store:
        before = read_manifest(tmp_path / "run")
        (tmp_path / "run" / "manifest.json").unlink()
        store.commit(a_run("a"), rows_of("a"))
    assert read_manifest(tmp_path / "run") == before
    assert [run.cell_id for run in read_run(tmp_path / "run").runs] == ["a"]
