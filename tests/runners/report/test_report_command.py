"""Command, law, injected fault: `runners.report` makes all tables anew from raw rows, without torch; its refusals."""

import csv
import gzip
import io
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.operators import registry
from reports.compare import gate
from results.records.answers import Headline, StepTime, Utilization, WorkTime
from results.records.counts import (
    Agreement,
    BatchLaw,
    CleanedOperation,
    CleaningLog,
    FlopCount,
    Operation,
    ProfileCount,
    Ratio,
)
from results.records.rows import header
from results.store.reading import read_operation_table, read_run
from runners import rebuild
from runners import report as report_command
from tests.support.fakes.commands import code_without, refused, running
from tests.support.made_up import run_fixture

ROOT = Path(__file__).parents[3]
TABLES = {
    "headline.csv": Headline,
    "utilization.csv": Utilization,
    "utilization_post2021.csv": Utilization,
    "step_times.csv": StepTime,
    "work_times.csv": WorkTime,
    "cleaned/profiled_operations.csv.gz": CleanedOperation,
    "cleaned/profile_counts.csv": ProfileCount,
    "cleaned/ratios.csv": Ratio,
    "cleaned/agreement.csv": Agreement,
    "cleaned/batch_law.csv": BatchLaw,
    "cleaned/flop_counts.csv": FlopCount,
    "cleaned/cleaning_log.csv": CleaningLog,
}
DERIVED = {*TABLES, "report.html"}
FIGURES = {f"figures/utilization_by_{what}.{ending}" for what in ("model", "batch") for ending in ("png", "svg")}

BLOCKED = code_without("torch torchvision pynvml nvtx sympy fvcore ptflops psutil measure workloads", "runners.report")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_fixture.write_run(tmp_path_factory.mktemp("raw") / "run")


@pytest.fixture(scope="module")
def rebuilt(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A run and what a process that cannot import torch derives of it."""
    path = Path(shutil.copytree(run, tmp_path_factory.mktemp("rebuilt") / "run"))
    return command(path, code=BLOCKED), path


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without figures and page, for tests of what is not drawn."""
    monkeypatch.setattr(rebuild, "_pictures", lambda out: {})
    monkeypatch.setattr(rebuild, "_page", lambda *given: b"a page")


def table(folder: Path, file: str) -> list[list[str]]:
    content = (folder / file).read_bytes()
    text = (gzip.decompress(content) if file.endswith(".gz") else content).decode()
    return list(csv.reader(io.StringIO(text)))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def command(*arguments: object, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "runners.report"]
    words = [sys.executable, "-W", "error", *start, *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_everything_is_rebuilt_where_torch_cannot_be_imported(run: Path, rebuilt: Any) -> None:
    raw = files(run)
    done, path = rebuilt
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    found = files(path)
    new = set(found) - set(raw)
    drawn = {name for name in new if name.startswith("figures/")}
    assert new - drawn == DERIVED
    assert drawn >= FIGURES
    assert {Path(name).stem for name in drawn if name.endswith(".png")} == {
        Path(name).stem for name in drawn if name.endswith(".svg")
    }
    assert {name: found[name] for name in raw} == raw  # raw is never edited
    # at fp32 resnet18 did not converge, and no headline rests on it
    assert "At amp-bf16, batch 64, resnet18 uses 20 % of the datasheet peak and mobilenet_v2 0.40 %" in done.stdout


def test_what_is_written_has_the_columns_of_its_record(copy: Path, undrawn: None) -> None:
    rebuild.rebuild(copy)
    for file, record in TABLES.items():
        names, *rows = table(copy, file)
        assert tuple(names) == header(record)
        if record in (Headline, Utilization, FlopCount):
            assert rows
        if "profile" in file or file == "work_times.csv":
            assert not rows  # a run without profiles: a table is a header
    names, *rows = table(copy, "cleaned/cleaning_log.csv")
    assert tuple(names) == header(CleaningLog)
    # the log of each measured cell: batch_norm and ReLU left out
    assert len(rows) == 8 * 2


def test_rebuilding_twice_gives_the_same_bytes(rebuilt: Any, tmp_path: Path) -> None:
    """In another process, at another place."""
    again = Path(shutil.copytree(rebuilt[1], tmp_path / "run"))
    rebuild.rebuild(again)
    assert files(again) == files(rebuilt[1])


def test_the_convention_of_the_post_is_printed_and_no_file_differs(
    copy: Path, undrawn: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_command.main([str(copy)]) == 0
    ours, before = capsys.readouterr().out, files(copy)
    assert report_command.main([str(copy), "--convention", "post2021"]) == 0
    assert files(copy) == before
    assert "convention post2021: a multiply-add counts as 1" in capsys.readouterr().out
    assert "post2021" not in ours
    assert report_command.main([str(copy), "--convention", "post2021", "--format", "csv"]) == 0
    assert capsys.readouterr().out == (copy / "utilization_post2021.csv").read_text(encoding="utf-8")
    run = running(report_command.main, capsys)
    refused(run(copy, "--convention", "post2020"), "nearest post2021")
    for words in ((copy, "--check"), (copy, copy)):
        refused(run(*words, "--convention", "post2021"), "--convention: expected one run")
    refused(run(copy, "--check", "--out", "elsewhere"), "--out: expected without --check")


def test_a_report_has_the_counts_of_its_run_and_reprice_those_of_today(
    copy: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was counted by other rules, whose numbers are three times today's. `report A B` counts both anew."""
    rebuild.rebuild(copy)
    today = exact_flop(copy)

    def by_other_rules(path: Path, trace_id: str) -> list[Operation]:
        costs = map(registry.with_cost, read_operation_table(path, trace_id))
        return [replace(cost, rules=7, model_flop=3 * (cost.model_flop or 0)) for cost in costs]

    monkeypatch.setattr(rebuild, "read_operation_table", by_other_rules)
    assert report_command.main([str(copy)]) == 0
    assert exact_flop(copy) == [3 * flop for flop in today]
    assert "FLOP were counted by version 7 of the rules" in " ".join(capsys.readouterr().out.split())
    assert report_command.main([str(copy), "--reprice"]) == 0
    assert exact_flop(copy) == today
    assert "of the rules" not in capsys.readouterr().out
    monkeypatch.setattr(gate, "read_operations", lambda path, trace_id: (by_other_rules(path, trace_id), []))
    monkeypatch.setattr(gate, "peak_bytes", lambda operations, storages: 0)
    data = read_run(copy)
    trace_id = next(run.trace_id for run in data.runs if run.trace_id)
    step = gate.counted_step(data, trace_id)
    assert step["flop"] == registry.total(read_operation_table(copy, trace_id)).model_flop


def exact_flop(run: Path) -> list[int]:
    with (run / "utilization.csv").open(encoding="utf-8", newline="") as file:
        return [int(row["model_flop"]) for row in csv.DictReader(file) if row["method"] == "exact"]


def test_figures_of_an_earlier_report_are_removed_and_nothing_else(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {"now.png": b"1", "now.svg": b"<svg/>"}
    monkeypatch.setattr(rebuild, "_pictures", lambda out: drawn)
    monkeypatch.setattr(rebuild, "_page", lambda *given: b"a page")
    (copy / "figures").mkdir()
    for name in ("gone.png", "gone.svg", "mine.png", "notes.svg", "notes.txt"):
        (copy / "figures" / name).write_text("x")
    rebuild.rebuild(copy)
    left = {path.name for path in (copy / "figures").iterdir()}
    assert left == {"now.png", "now.svg", "mine.png", "notes.svg", "notes.txt"}


def test_a_figure_that_cannot_be_drawn_costs_no_table(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(out: Path) -> dict[str, bytes]:
        raise KeyError("no such column\nin this file")

    monkeypatch.setattr(rebuild, "_pictures", broken)
    assert report_command.main([str(copy)]) == 3
    out, err = capsys.readouterr()
    line = "figures could not be made: KeyError: "
    assert err.count("\n") == 2
    assert f"error: {line}" in err
    assert f"note: {line}" in out
    assert {name for name in files(copy) if not name.startswith("figures/")} >= DERIVED


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("manifest.json", "[1, 2", "manifest.json"),
        ("manifest.json", '{"schema_version": 99}', "schema version 99"),
        ("runs.csv", "\ufffe\0", "runs.csv"),
        ("runs.csv", "name,price\napple,1\n", "runs.csv"),
    ],
)
def test_a_run_of_something_else_is_one_line(
    file: str, content: str, words: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / file).write_text(content)
    refused(running(report_command.main, capsys)(copy), words)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required"),
        (["x", "--format", "jsn"], "nearest json"),
        (["x", "--fromat", "csv"], "nearest --format"),
        (["x", "y", "--reprice"], "--reprice: expected one run"),
    ],
)
def test_mistakes_of_the_command_line(arguments: list[object], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(running(report_command.main, capsys)(*arguments), said)


def test_a_damaged_cell_is_left_out_and_named(copy: Path, capsys: pytest.CaptureFixture[str], undrawn: None) -> None:
    path = copy / "samples.csv"
    text = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(text[:3] + text[4:]), encoding="utf-8")  # a row of the first cell is gone
    assert report_command.main([str(copy)]) == 0
    out = capsys.readouterr().out
    assert "left out: not what was committed in samples.csv" in re.sub(r"\s+", " ", out)
    with (copy / "utilization.csv").open(encoding="utf-8", newline="") as file:
        assert len({row["cell_id"] for row in csv.DictReader(file)}) == 8


def test_a_torn_last_line_is_a_note_and_the_rest_is_reported(
    copy: Path, capsys: pytest.CaptureFixture[str], undrawn: None
) -> None:
    with (copy / "samples.csv").open("ab") as file:
        file.write(b"0123456789abcdef,1,0,meas")
    assert report_command.main([str(copy)]) == 0
    assert "torn last line" in capsys.readouterr().out
