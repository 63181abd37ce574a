"""Law, injected fault: equal traces are one operation table of equal bytes; a damaged table is written again."""

import hashlib
import time

import pytest

from results.errors import Inconsistent
from results.store.store import Store, read_operations, read_run
from tests.support.made_up.made_up_runs import a_run, new_store, operations, rows_of, storages


def test_a_trace_is_read_back_and_kept_once(tmp_path):
    with new_store(tmp_path / "run") as store:
        entries = store.write_operations("t1", operations(), storages())
        names = ["operations/t1.csv.gz", "operations/t1.storages.csv.gz"]
        assert {file: rows for file, (rows, _) in entries.items()} == dict.fromkeys(names, 2)
        before = {file: (store.path / file).stat().st_mtime_ns for file in names}
        assert store.write_operations("t1", operations(), storages()) == entries
        assert {file: (store.path / file).stat().st_mtime_ns for file in names} == before
        with pytest.raises(Inconsistent, match=r"t1\.csv\.gz is there and differs: two tables"):
            store.write_operations("t1", operations(3), storages())  # header, two rows, and here a third
        store.commit(a_run("a", trace_id="t1"), rows_of("a"))
        checksum = hashlib.sha256((store.path / names[0]).read_bytes()).hexdigest()[:16]
    assert read_operations(tmp_path / "run", "t1") == (operations(), storages())
    data = read_run(tmp_path / "run")
    assert data.problems == []
    assert data.runs[0].committed[names[0]] == [2, checksum]
    assert data.runs[0].committed.items() >= entries.items()


def test_equal_traces_give_equal_bytes_at_any_time(tmp_path, monkeypatch):
    contents = []
    for number in range(2):
        monkeypatch.setattr(time, "time", lambda number=number: 1e9 + 1000 * number)
        with new_store(tmp_path / str(number)) as store:
            store.write_operations("t", operations(), storages())
        contents.append((tmp_path / str(number) / "operations" / "t.csv.gz").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0][3] == 0, "no name in the header"
    assert contents[0][4:8] == bytes(4), "no time in the header"


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_trace_is_named_and_written_again(tmp_path, damage):
    with new_store(tmp_path / "run") as store:
        store.write_operations("t", operations(), storages())
        store.commit(a_run("a", trace_id="t"), rows_of("a"))
        store.commit(a_run("b"), rows_of("b"))
    file = tmp_path / "run" / "operations" / "t.csv.gz"
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-20] if damage == "cut" else data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(ValueError if damage == "gone" else Inconsistent, match=r"t\.csv\.gz"):
        read_operations(tmp_path / "run", "t")
    found = read_run(tmp_path / "run")
    assert [run.cell_id for run in found.runs] == ["b"]
    assert found.problems == ["attempt 1 of cell a left out: not what was committed in operations/t.csv.gz"]
    with Store.resume(tmp_path / "run") as store:
        assert list(store.done()) == ["b"]
        store.write_operations("t", operations(), storages())
        store.commit(a_run("a", 2, trace_id="t"), rows_of("a", 2))
    assert [run.attempt for run in read_run(tmp_path / "run").runs] == [1, 2]


@pytest.mark.parametrize("name", ["", "../t", "a/b", ".hidden", "a b"])
def test_a_trace_id_is_a_file_name(tmp_path, name):
    with new_store(tmp_path / "run") as store, pytest.raises(ValueError, match="expected a trace_id of letters"):
        store.write_operations(name, [], [])
