"""The report command: everything from raw rows, nothing changed in them, no torch, one line for each mistake."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from results.records import CleaningLog, FlopCount, Utilization, header
from results.store import Store
from runners import report
from tests import made_up_runs
from tests import run_fixture as made

ROOT = Path(__file__).parents[1]
DERIVED = {"step_times.csv", "utilization.csv", "cleaned/flop_counts.csv", "cleaned/cleaning_log.csv"} | {
    f"figures/utilization_by_{what}.{ending}" for what in ("model", "batch") for ending in ("png", "svg")
}

BLOCKED = """
import sys

FORBIDDEN = "torch torchvision pynvml nvtx sympy fvcore ptflops psutil measure workloads".split()

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ImportError(f"{name} is forbidden here")

sys.meta_path.insert(0, Forbid())
from runners.report import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write_run(tmp_path_factory.mktemp("raw") / "run")


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def command(*arguments: object, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "runners.report"]
    words = [sys.executable, "-W", "error", *start, *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def refused(arguments: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a mistake."""
    with pytest.raises(SystemExit) as left:
        report.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (left.value.code, out, err.count("\n")) == (2, "", 1)
    return err


def test_everything_is_rebuilt_where_torch_cannot_be_imported(copy: Path) -> None:
    raw = files(copy)
    done = command(copy, code=BLOCKED)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    found = files(copy)
    assert set(found) - set(raw) == DERIVED
    assert {name: found[name] for name in raw} == raw  # raw is never edited
    assert "resnet18" in done.stdout
    assert "At fp32, batch 64, resnet18 uses 60 % of the datasheet peak and mobilenet_v2 6.0 %" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_what_is_written_has_the_columns_of_its_record(copy: Path) -> None:
    report.rebuild(copy)
    for file, record in {
        "utilization.csv": Utilization,
        "cleaned/flop_counts.csv": FlopCount,
        "cleaned/cleaning_log.csv": CleaningLog,
    }.items():
        with (copy / file).open(encoding="utf-8", newline="") as text:
            names, *rows = csv.reader(text)
        assert tuple(names) == header(record)
        assert rows
    # the log of each measured cell: eight counts brought to FLOP, and batch_norm and ReLU then left out
    assert len(rows) == 8 * (8 + 2)


def test_rebuilding_twice_gives_the_same_bytes(copy: Path) -> None:
    report.rebuild(copy)
    first = files(copy)
    report.rebuild(copy)
    assert files(copy) == first


def test_out_leaves_the_run_alone(copy: Path, tmp_path: Path) -> None:
    raw = files(copy)
    report.rebuild(copy, tmp_path / "elsewhere" / "deep")
    assert files(copy) == raw
    assert set(files(tmp_path / "elsewhere" / "deep")) == DERIVED


def test_json_is_one_document_with_every_key(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(copy), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 9 * 4 * 4  # cells × (exact, theory of two counters, as published) × denominators
    assert all(tuple(row) == header(Utilization) for row in rows)
    assert any(row["utilization_ratio"] is None and row["reason"] for row in rows)


def test_csv_is_the_file(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(copy), "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert out == (copy / "utilization.csv").read_text(encoding="utf-8")
    assert err.startswith("written: ")


def test_a_directory_that_holds_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected the directory of a run" in refused([tmp_path / "nowhere"], capsys)
    assert "expected the directory of a run" in refused([tmp_path], capsys)
    (tmp_path / "file").write_text("x")
    assert "expected the directory of a run" in refused([tmp_path / "file"], capsys)


def test_a_run_without_committed_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store.create(tmp_path / "empty", made_up_runs.MANIFEST).close()
    assert "no committed cell" in refused([tmp_path / "empty"], capsys)


def test_an_alien_manifest(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "manifest.json").write_text("[1, 2")
    assert "manifest.json" in refused([copy], capsys)
    (copy / "manifest.json").write_text('{"schema_version": 99}')
    assert "schema version 99" in refused([copy], capsys)


def test_an_alien_runs_file(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "runs.csv").write_bytes(b"\xff\xfe\x00")
    assert str(copy) in refused([copy], capsys)
    (copy / "runs.csv").write_text("name,price\napple,1\n")
    assert str(copy) in refused([copy], capsys)


def test_a_torn_last_line_is_a_note_and_the_rest_is_reported(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (copy / "samples.csv").open("ab") as file:
        file.write(b"0123456789abcdef,1,0,meas")
    assert report.main([str(copy)]) == 0
    assert "torn last line" in capsys.readouterr().out


def test_a_damaged_cell_is_left_out_and_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy / "samples.csv"
    text = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(text[:3] + text[4:]), encoding="utf-8")  # a row of the first cell is gone
    assert report.main([str(copy)]) == 0
    out = capsys.readouterr().out
    assert "left out: not what was committed in samples.csv" in re.sub(r"\s+", " ", out)
    with (copy / "utilization.csv").open(encoding="utf-8", newline="") as file:
        assert len({row["cell_id"] for row in csv.DictReader(file)}) == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "required"), (["x", "--format", "jsn"], "nearest json"), (["x", "--fromat", "csv"], "nearest --format")],
)
def test_mistakes_of_the_command_line(arguments: list[object], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(arguments, capsys)


def test_a_place_that_cannot_be_written(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert report.main([str(copy), "--out", str(tmp_path / "file" / "below")]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "could not be written" in err
    assert err.count("\n") == 1


def test_help_and_mistakes_answer_at_once() -> None:
    for arguments, code in ((["--help"], 0), (["--format", "jsn", "x"], 2)):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            assert command(*arguments).returncode == code
            times.append(time.perf_counter() - start)
        assert min(times) < 0.5
    slow = "[m for m in ('pandas', 'seaborn', 'numpy', 'rich') if m in sys.modules]"
    assert command(code=f"import sys, runners.report; print({slow})").stdout == "[]\n"
