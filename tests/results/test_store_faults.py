"""Injected fault, law: each refusal of the disk is a StoreFault, whole rows are kept, and the store goes on."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from results.errors import StoreFault
from results.records.cell import Sample
from results.records.rows import header
from results.store.store import Store, read_run
from tests.support.made_up.made_up_runs import Failing, a_run, new_store, rows_of, samples


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize("spare", range(4))
def test_every_refusal_of_the_system_is_a_store_fault(tmp_path, code, call, spare):
    """Whichever file of the commit is refused: the commit failed, rows before it are kept, and the store goes on."""
    disk = Failing(code, (call,))
    with new_store(tmp_path / "run", disk) as store:
        store.commit(a_run("a"), rows_of("a"))
        disk.broken, disk.spare = True, spare
        with pytest.raises(StoreFault, match=re.escape(os.strerror(code))) as caught:
            store.commit(a_run("b"), rows_of("b"))
        assert isinstance(caught.value.__cause__, OSError)
        assert [run.cell_id for run in read_run(store.path).runs] == ["a"]
        disk.broken = False
        assert list(store.done()) == ["a"]
        store.commit(a_run("b", 2), rows_of("b", 2))
    data = read_run(tmp_path / "run")
    assert [(run.cell_id, run.attempt) for run in data.runs] == [("a", 1), ("b", 2)]
    assert data.samples["wall_s"].tolist() == [row.wall_s for row in samples("a") + samples("b", 2)]


def test_a_partial_write_is_taken_back(tmp_path):
    disk = Failing(part=40)
    with new_store(tmp_path / "run", disk) as store:
        store.commit(a_run("a"), rows_of("a"))
        before = (store.path / "samples.csv").read_bytes()
        disk.broken = True
        with pytest.raises(StoreFault):
            store.commit(a_run("b"), rows_of("b"))
        assert (store.path / "samples.csv").read_bytes() == before
    assert read_run(tmp_path / "run").problems == []


@pytest.mark.parametrize("resumed", [False, True])
def test_what_cannot_be_taken_back_is_cut_at_the_next_opening(tmp_path, resumed):
    disk = Failing(part=40, calls=("write", "truncate"))
    store = new_store(tmp_path / "run", disk)
    store.commit(a_run("a"), rows_of("a"))
    whole = (store.path / "samples.csv").read_bytes()
    disk.broken = True
    with pytest.raises(StoreFault):
        store.commit(a_run("b"), rows_of("b"))
    torn = (store.path / "samples.csv").read_bytes()
    assert torn != whole
    assert torn.startswith(whole)
    assert not torn.endswith(b"\n")
    assert "samples.csv: a torn last line was dropped" in read_run(store.path).problems
    disk.broken = False
    if resumed:
        store.close()
        store = Store.resume(tmp_path / "run")
    store.commit(a_run("b", 2), rows_of("b", 2))
    store.close()
    lines = (store.path / "samples.csv").read_bytes().splitlines()
    assert {line.count(b",") for line in lines} == {len(header(Sample)) - 1}, "every line has all fields"
    data = read_run(tmp_path / "run")
    assert [(run.cell_id, run.attempt) for run in data.runs] == [("a", 1), ("b", 2)]


def can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


FILL = """
import resource, sys
sys.path[:0] = sys.argv[2:]
from tests.support.made_up.made_up_runs import MANIFEST, SESSION, a_run, samples
from results.store import disk as disks
from results.errors import StoreFault
from results.store.store import Store, read_run
if BYTES:
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))
store = Store.create(sys.argv[1], MANIFEST)
store.append_session(SESSION)
kept = 0
try:
    while kept < 1000:
        store.commit(a_run(f"c{kept}"), {"samples.csv": samples(f"c{kept}", 1, 30)})
        kept += 1
except StoreFault as fault:
    print(fault)
data = read_run(sys.argv[1])
assert [run.cell_id for run in data.runs] == [f"c{i}" for i in range(kept)], data.problems
assert len(data.samples) == 30 * kept > 0
assert all(open(f"{sys.argv[1]}/{name}", "rb").read().endswith(b"\\n") for name in ("samples.csv", "runs.csv"))
print(kept, data.problems)
"""


@pytest.mark.parametrize("disk", ["limit", *(["tmpfs"] if can_mount() else [])])
def test_a_disk_that_is_really_full(tmp_path, disk):
    """A file size limit on any machine; a file system of 256 KiB too where one can be mounted."""
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    code = FILL.replace("BYTES", str(64 * 1024 if disk == "limit" else 0))
    command = [sys.executable, "-c", code, str(tmp_path / "run"), *paths]
    if disk == "tmpfs":
        mount = 'mount -t tmpfs -o size=256k none "$0" && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", mount, str(tmp_path), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = "File too large" if disk == "limit" else "No space left on device"
    assert f"could not be written: {said}; whole rows are kept, --resume goes on" in done.stdout
    if disk == "limit":  # outside the limit there is room again
        kept = int(done.stdout.splitlines()[-1].split()[0])
        with Store.resume(tmp_path / "run") as store:
            assert len(store.done()) == kept
            store.commit(a_run("next"), rows_of("next"))
        assert len(read_run(tmp_path / "run").runs) == kept + 1
