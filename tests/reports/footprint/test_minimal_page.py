"""docs/minimal-footprint.md against what its command finds: two models always, all of it as `slow`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pages.minimal_footprint import MODELS, curve_of, main, model_of, moved
from reports.footprint.minimum_page import curve, line, moves, overview

PAGE = Path(__file__).parents[3] / "docs" / "minimal-footprint.md"

EACH = {each[0]: each for each in MODELS}


@pytest.mark.parametrize("name", ["wordlm", "vgg16"])
def test_a_models_line_is_what_is_found_now(name: str) -> None:
    found = model_of(*EACH[name])
    row = f"| {' | '.join(line(found))} |"
    assert row in PAGE.read_text(encoding="utf-8").splitlines()
    assert found.found.proven
    assert found.found.minimal_bytes < found.last_use_bytes < found.found.eager_bytes
    assert row in overview([found])


def test_where_a_peak_moves_is_what_is_found_now() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = moves({"vgg16": moved(*EACH["vgg16"])}).splitlines()[2:]
    assert len(rows) == 5
    assert all(row in text for row in rows)


@pytest.mark.slow
def test_a_curve_is_what_is_found_now() -> None:
    assert curve(curve_of(model_of(*EACH["mobilenet_v2"]))) in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_is_what_the_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["minimal_footprint", "--write", str(tmp_path / "page.md")])
    assert main() == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
