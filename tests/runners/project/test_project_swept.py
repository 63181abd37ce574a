"""`runners.project --parallel --run`: what it refuses. Its answer about a real run: `test_sweep_pipeline.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.project import command
from tests.support.fakes.commands import refused, running

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "results" / "published" / "amd-epyc-2-cores-2026-11-29"


def test_what_is_no_run_of_several_ranks_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = running(command.main, capsys)
    refused(project("--parallel", "--run", tmp_path / "none"), str(tmp_path / "none"))
    refused(project("--parallel", "--run", PUBLISHED), "expected a run of several ranks", "--parallel")
    refused(project("--parallel", "--run", PUBLISHED, "--links", tmp_path), "--links: expected collective_rates.csv")
    refused(project("--parallel", "--run", PUBLISHED, "--devices", "8"), "--devices")


def test_its_own_help_has_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = running(command.main, capsys)("--parallel", "--run=x", "--help")
    assert (code, err) == (0, "")
    assert "--links DIR" in out
