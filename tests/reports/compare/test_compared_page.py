"""Definition, injected fault: what report.html of two runs says first; a run is refused as the place to write it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reports.compare.page import sentence
from results.records.answers import FASTER, ONLY_B, SAME, SLOWER, UNKNOWN, Comparison
from runners import report as command
from tests.support.fakes.commands import refused, running
from tests.support.fakes.page_reader import Reader
from tests.support.made_up import made_up_evidence
from tests.support.made_up.made_up_evidence import REPEATED, slower


def row(verdict: str, ratio: float | None, model: str = "vgg11") -> Comparison:
    return Comparison(model=model, batch_size=8, precision="fp32", device="cuda", verdict=verdict, ratio=ratio)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [row(SLOWER, 1.2), row(SLOWER, 1.35), row(ONLY_B, None)],
            "B is slower than A in all 2 cells of both runs: its steps take 1.20 to 1.35 times as long.",
        ),
        (
            [row(SAME, 1.004)],
            "B takes the same time as A in the cell of both runs: its steps take 1.00 times as long.",
        ),
        (
            [row(SLOWER, 1.2), row(FASTER, 0.8), row(SAME, 1.0), row(SAME, 1.0), row(UNKNOWN, 1.1)],
            "Of the 5 cells of both runs, B is slower in 1, faster in 1, the same in 2; 1 undecided.",
        ),
        (
            [row(UNKNOWN, 1.1), row(UNKNOWN, None)],
            "Whether B is faster or slower is undecided in all 2 cells of both runs.",
        ),
    ],
)
def test_the_sentence_says_what_became_of_the_cells(rows: list[Comparison], said: str) -> None:
    assert sentence(rows) == said


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A, and B: 1.1 times as slow, by another torch, with a cell more, a warning and a cell that failed."""
    folder = tmp_path_factory.mktemp("runs")
    other = slower(made_up_evidence.parts((*REPEATED, ("tf32", 16, 0), ("fp32", 32, 0))), 1.1)
    session = other.sessions[0]
    other.sessions = [replace(session, torch_version="2.14.0", environment={**session.environment, "cpu": "another"})]
    other.manifest = replace(other.manifest, name="second", commands=("python -m runners.sweep --b",))
    warned, lost = other.cells["tf32", 8, 0], other.cells["fp32", 32, 0]
    warned.run = replace(warned.run, warnings=("busy: others took 7 %",))
    lost.run, lost.samples = replace(lost.run, status="out_of_memory", reason="61 GiB"), []
    return made_up_evidence.write(folder / "a", made=made_up_evidence.parts(REPEATED)), made_up_evidence.write(
        folder / "b", made=other
    )


@pytest.fixture(scope="module")
def out(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("out") / "deep"
    assert command.main([*map(str, runs), "--across", "torch_version", "--out", str(place)]) == 0
    return place


def test_the_page_says_what_differs_first_and_from_what(out: Path) -> None:
    text = Reader((out / "report.html").read_text(encoding="utf-8")).text.replace("\u00a0", " ")
    verdict = text[: text.index("Cells Figures")]
    assert "B is slower than A in all 2 cells of both runs: its steps take 1.10 times as long." in verdict
    assert re.search(
        r"1\.10 times as long in B \(95 % interval 1\.10 to 1\.10; same would be within ±3\.0 %\)", verdict
    )
    assert "second · NVIDIA H200 · torch 2.14.0 · 2026-01-02" in verdict
    assert "2 in both, 2 only in B" in verdict


def test_a_run_is_no_place_for_a_comparison(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, (a, b) = running(command.main, capsys), runs
    before = sorted(path.name for path in a.iterdir())
    refused(run(a, a, "--out", a), "--out: expected a directory of its own for the comparison", "which is a run")
    refused(run(a, b, "--out", tmp_path / "new"), "torch_version", "--across")
    assert sorted(path.name for path in a.iterdir()) == before
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("x")
    refused(run(a, a, "--out", tmp_path / "file" / "below"), "could not be written", code=3)
