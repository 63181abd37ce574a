"""Injected fault: a counter that failed is run again, by this process or by one that reads the rows later."""

import pytest

from results.store.store import Store
from tests.support.made_up.made_up_runs import a_run, flop_count, new_store, rows_of


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
