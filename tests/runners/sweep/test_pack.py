"""The archive of a run: what is in it, when it is made, and what is left of it when the making fails."""

import random
import tarfile

import pytest

from results.errors import StoreFault
from runners.cli.exits import Mistake
from runners.sweep import pack
from runners.sweep.pack import EVERY_S, LEFT_OUT, Pack, packing

NOISE = random.Random(0)


@pytest.fixture
def run(tmp_path):
    """A run with pictures, and three files that no archive makes smaller."""
    path = tmp_path / "run"
    for file, size in (
        ("manifest.json", 100),
        (".lock", 10),
        ("report.html", 10),
        ("figures/a.png", 10),
        ("figures/a.svg", 10),
        ("operations/t.csv.gz", 50_000),
        ("profiles/c-1.csv.gz", 20_000),
        ("profiles/c-1-batch.kineto.json.gz", 30_000),
    ):
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_bytes(NOISE.randbytes(size))
    return path


def names(file):
    with tarfile.open(file) as archive:
        return {name.removeprefix("run/") for name in archive.getnames()}


RAW = {"manifest.json", "operations/t.csv.gz", "profiles/c-1.csv.gz", "profiles/c-1-batch.kineto.json.gz"}


@pytest.mark.parametrize(
    ("most_bytes", "missing"),
    [
        (90_000, {"profiles/c-1-batch.kineto.json.gz"}),  # 100 KB are too many by 10: the largest recording goes
        (60_000, {"profiles/c-1-batch.kineto.json.gz", "profiles/c-1.csv.gz"}),
        (10_000, {"profiles/c-1-batch.kineto.json.gz", "profiles/c-1.csv.gz", "operations/t.csv.gz"}),
    ],
)
def test_what_there_is_no_room_for_is_named(run, tmp_path, capsys, most_bytes, missing):
    file = tmp_path / "run.tar.gz"
    Pack(run, file, most_bytes=most_bytes).write()
    assert file.stat().st_size <= most_bytes
    assert names(file) == (RAW - missing) | {LEFT_OUT}
    with tarfile.open(file) as archive:
        assert set(archive.extractfile(f"run/{LEFT_OUT}").read().decode().split()) == missing
    assert f"no room for {len(missing)} files" in capsys.readouterr().err


def test_a_new_one_is_made_when_a_minute_has_passed_and_at_every_end(run, tmp_path):
    now, file = [0.0], tmp_path / "run.tar.gz"
    kept = Pack(run, file, lambda: now[0])
    for now[0], made in ((EVERY_S - 1, False), (EVERY_S, True), (2 * EVERY_S - 1, False)):
        kept.after_cell()
        assert file.exists() is made
        file.unlink(missing_ok=True)
    with pytest.raises(KeyboardInterrupt), packing(run, file):
        raise KeyboardInterrupt
    assert names(file) == RAW


def test_a_place_that_takes_no_file_is_said_before_anything_is_measured(tmp_path):
    with pytest.raises(Mistake, match="got a directory"):
        pack.check(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFault):
        pack.check(tmp_path / "file" / "run.tar.gz")
