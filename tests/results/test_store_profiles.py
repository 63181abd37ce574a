"""Law, injected fault: a profile is one file, committed with its attempt and replaced only before that."""

import dataclasses
import hashlib

import pytest

from results.errors import Inconsistent
from results.records.counts import ProfiledOperation
from results.store.store import Store, read_profile, read_run
from tests.support.made_up.made_up_runs import Unsynced, a_run, new_store, rows_of

CALLS = [
    ProfiledOperation(
        "one", 0, None, "aten::conv2d", "forward", "features.0", 191, None, 1,
        ((2, 3, 8, 8), (4, 3, 3, 3), (), (), (), (), ()),
        ("float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar"),
        (None, None, None, (1, 1), (1, 1), (1, 1), 1),
        27648, 0.0, 3.5e-4, None,
    ),
    ProfiledOperation(
        "one", 1, 0, "aten::convolution_backward", "backward", "features.0", None, 0, 2,
        ((2, 4, 8, 8), ()), ("float", ""), (None, (True, True, False)), None, 4e-4, 1e-4, 9e-5,
    ),
]  # fmt: skip
FILE = "profiles/a-1.csv.gz"


def test_a_profile_is_committed_with_its_attempt_and_read_back(tmp_path):
    with new_store(tmp_path / "run") as store:
        entries = store.write_profile("a", 1, CALLS)
        assert entries == {FILE: [2, hashlib.sha256((store.path / FILE).read_bytes()).hexdigest()[:16]]}
        store.commit(dataclasses.replace(a_run("a"), profiled=("one",), committed=entries), rows_of("a"))
    data = read_run(tmp_path / "run")
    assert data.problems == []
    assert data.runs[0].committed.items() >= entries.items()
    assert read_profile(tmp_path / "run", "a", 1) == CALLS


def test_what_a_killed_sweep_left_is_replaced_and_an_attempt_used_is_not(tmp_path):
    with new_store(tmp_path / "run") as store:
        store.write_profile("a", 1, CALLS)
        (store.path / "profiles" / ".b-1.csv.gz.tmp").write_bytes(b"half")
    with Store.resume(tmp_path / "run") as store:
        assert not (store.path / "profiles" / ".b-1.csv.gz.tmp").exists()
        entries = store.write_profile("a", 1, CALLS[:1])
        store.commit(dataclasses.replace(a_run("a"), committed=entries), rows_of("a"))
        with pytest.raises(ValueError, match="attempt 1 of cell a is used, the next is 2"):
            store.write_profile("a", 1, CALLS)
    assert read_profile(tmp_path / "run", "a", 1) == CALLS[:1]
    assert read_run(tmp_path / "run").problems == []


def test_a_damaged_profile_is_named_and_its_cell_is_measured_again_though_its_rows_stay(tmp_path):
    with new_store(tmp_path / "run") as store:
        entries = store.write_profile("a", 1, CALLS)
        store.commit(dataclasses.replace(a_run("a"), committed=entries), rows_of("a"))
    file = tmp_path / "run" / FILE
    file.write_bytes(file.read_bytes()[:-9])
    found = read_run(tmp_path / "run")
    assert ([run.cell_id for run in found.runs], found.damaged) == (["a"], {FILE})
    assert found.problems == [f"attempt 1 of cell a: {FILE} is not what was committed"]
    with Store.resume(tmp_path / "run", Unsynced()) as store:
        assert store.done() == {}
    with pytest.raises(Inconsistent, match=r"a-1\.csv\.gz"):
        read_profile(tmp_path / "run", "a", 1)
