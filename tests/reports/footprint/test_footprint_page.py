"""docs/footprint.md against the rows it is made of, and predictions of some of those rows made again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.pages.footprint import MACHINE, ROWS, SUITE, _append, main, read
from reports.footprint.page import GOAL_ALL, GOAL_TENSORS, error, page, peer_error, signed, tensors_error, unmeasured
from results.records.footprint import FootprintCheck

ROOT = Path(__file__).parents[3]
PUBLISHED = Path("tests/data/footprint")
OTHERS = Path("tests/data/footprint-models")
ROW = FootprintCheck(
    model="m", batch_size=2, precision="fp32", optimizer="sgd", device="cpu", predicted_bytes=990,
    predicted_at="aten.mm", predicted_phase="backward", unknown=0, measured_bytes=1100, tensors_bytes=1000,
    own_bytes=100, measured_at="aten.mm", tracked_bytes=1001,
)  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> list[FootprintCheck]:
    return read(ROOT / PUBLISHED)


def test_the_page_is_what_the_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["--write", str(tmp_path / "page.md"), str(PUBLISHED), str(OTHERS)]) == 0
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "footprint.md").read_text()


def test_errors_by_hand() -> None:
    assert (error(ROW), tensors_error(ROW), peer_error(ROW)) == pytest.approx((-0.1, -0.01, -0.09))
    unknown = replace(ROW, measured_bytes=None, tensors_bytes=None, tracked_bytes=None)
    assert (error(unknown), tensors_error(unknown), peer_error(unknown)) == (None, None, None)


@pytest.mark.parametrize(
    ("ratio", "words"), [(0.0, "0"), (4e-6, "0"), (-0.01234, "−1.2 %"), (0.00051, "+0.051 %"), (None, "–")]
)
def test_signed(ratio: float | None, words: str) -> None:
    assert signed(ratio) == words


def test_a_page_of_made_up_rows() -> None:
    rows = [
        replace(ROW, tensors_bytes=995),
        replace(ROW, model="n", measured_bytes=1000, predicted_bytes=1000, tracked_bytes=None),
    ]
    text = page(rows, {"processor": "made up", "isa": ""}, "`here`")
    assert "Machine: processor made up." in text
    assert "| fp32 | 2 | −0.50 %, −0.25 %, 0 | −10 %, −5.0 %, 0 | −9.0 %, −9.0 %, −9.0 % |" in text
    assert "Tensors within 1 %: 2 of 2 steps. All within 5 %, with no allowance for kernels: 1 of 2." in text
    assert re.search(r"^\| n \| 2 \| .*\| fails \|$", text, re.MULTILINE)


def test_other_models_have_a_section_of_their_own() -> None:
    """One beyond 5 %, by its kernels and then not; and none."""
    beyond = replace(ROW, model="o", optimizer="adamw", tensors_bytes=990)
    text = page([ROW], {}, "`here`", others=("`there`", [beyond, replace(beyond, model="p", measured_bytes=1000)]))
    assert "from `there`, on the same machine, batch 2, adamw." in text
    assert "\nBeyond 5 %, what kernels took for themselves on this CPU: o in fp32 (−10 %).\n" in text
    text = page([ROW], {}, "`here`", others=("`there`", [replace(beyond, tensors_bytes=995, measured_bytes=1500)]))
    assert "\nBeyond 5 %, what kernels took for themselves on this CPU: o in fp32 (−34 %).\n" in text
    text = page([ROW], {}, "`here`", others=("`there`", [replace(beyond, tensors_bytes=1100)]))
    assert "\nBeyond 5 %: o in fp32 (−10 %).\n" in text
    text = page([ROW], {}, "`here`", others=("`there`", [replace(beyond, measured_bytes=1000, unknown=3)]))
    assert "Beyond" not in text
    assert "\nStorages without a known size, which count as 0: o in fp32 has 3.\n" in text


@pytest.mark.parametrize("arguments", [("--write", "page.md"), ("--write", "page.md", "a", "b", "c"), ("a",)])
def test_how_many_directories(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "expected one or two DIR after --write FILE" in capsys.readouterr().err


def test_other_models_are_within_the_goal_of_tensors_but_for_unknown_storages() -> None:
    """LSTM's workspaces, whose size fake tensors do not know."""
    found = read(ROOT / OTHERS)
    assert len({row.model for row in found}) >= 12
    assert all(abs(tensors_error(row)) <= GOAL_TENSORS for row in found if not row.unknown)


def test_what_was_not_measured_is_said() -> None:
    rows = [replace(ROW, batch_size=n, model=m) for n, m in ((2, "m"), (2, "n"), (8, "n"))]
    assert unmeasured(rows[:2]) == ""
    assert unmeasured(rows) == " Not measured in every precision: batch 8 of m."
    both = [replace(row, precision=precision) for row in rows for precision in ("fp32", "amp-bf16")]
    assert unmeasured(both[:-1]) == " Not measured in every precision: batch 8 of m, n."


def test_the_goals_are_met_of_tensors(rows: list[FootprintCheck]) -> None:
    """And what is beyond is what the kernel at the peak took for itself."""
    assert {row.model for row in rows} == set(SUITE.models)
    assert all(abs(tensors_error(row)) <= GOAL_TENSORS for row in rows)
    assert all(abs(error(row)) <= GOAL_ALL for row in rows)
    assert all(row.measured_bytes - row.tensors_bytes <= row.own_bytes for row in rows)


def test_no_step_is_there_twice(rows: list[FootprintCheck]) -> None:
    assert len({(row.model, row.batch_size, row.precision, row.optimizer) for row in rows}) == len(rows)


def test_predictions_made_again_are_the_rows(
    rows: list[FootprintCheck], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps, and a third row that is wrong by a byte."""
    some = [row for row in rows if (row.model, row.batch_size) == ("resnet18", 2)]
    assert {row.precision for row in some} == {"fp32", "amp-bf16"}
    wrong = replace(some[0], predicted_bytes=some[0].predicted_bytes + 1)
    for each in (*some, wrong):
        _append(tmp_path / ROWS, each)
    assert main(["--again", str(tmp_path)]) == 1
    *differing, said = capsys.readouterr().out.splitlines()
    assert said == "2 of 3 predictions are the same"
    assert differing == [
        f"resnet18 batch 2 {wrong.precision}: {wrong.predicted_bytes:,}, now {some[0].predicted_bytes:,}"
    ]


def test_the_machine_is_said() -> None:
    said = json.loads((ROOT / PUBLISHED / MACHINE).read_text())
    assert {"device", "python", "torch", "processor"} <= said.keys()
