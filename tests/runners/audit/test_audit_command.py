"""The command: what it prints without a package, its documents, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from analysis.audit import architectures, training_flop
from runners.audit.command import main

ROOT = Path(__file__).parents[3]


def audit(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(each) for each in arguments]) == 0
    return capsys.readouterr().out


def test_a_document_has_the_exact_count_and_a_row_for_each_framework(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "trl,verl,nanogpt"
    line = ("gpt2", "--tokens", 1024, "--frameworks", names, "--formulas", tmp_path, "--format", "json")
    for name in ("trl", "verl"):
        (tmp_path / name).mkdir()
    found = json.loads(audit(capsys, *line))
    exact = found["exact"]["dense"]
    assert exact["forward_flop"] + exact["backward_flop"] == training_flop(architectures()["gpt2"], 1024)
    # 1,024 positions: causal keeps (1,024 + 1) / 2,048 of the pairs
    assert found["exact"]["causal"]["forward_flop"] < exact["forward_flop"]
    rows = {row["framework"]: row for row in found["frameworks"]}
    assert list(rows) == ["verl", "trl", "nanogpt"]
    assert rows["trl"]["status"] == "unavailable"
    assert "is not installed" in rows["trl"]["reason"]
    assert rows["trl"]["flop"] is None
    assert rows["trl"]["ratio"] is None
    causes = {each["cause"]: each["flop"] for each in rows["nanogpt"]["causes"]}
    assert rows["nanogpt"]["flop"] == sum(exact.values()) + sum(causes.values())
    assert rows["nanogpt"]["unexplained_flop"] == 0


def test_the_same_numbers_as_csv_and_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("gpt2", "--tokens", 1024, "--frameworks", "nanogpt", "--formulas", tmp_path)
    (row,) = csv.DictReader(io.StringIO(audit(capsys, *line, "--format", "csv")))
    assert row["unexplained_flop"] == "0"
    text = audit(capsys, *line)
    assert f"{float(row['ratio']):.3f}" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt3"], "gpt2"),
        ([], "expected a MODEL, --suite audit or --peaks"),
        (["gpt2", "--frameworks", "verll"], "verl"),
        (["gpt2", "--tokens", "4096"], "has 1024 positions, got 4096"),
        (["gpt2", "--page", "x.md"], "expected --suite audit"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else -1
    said = capsys.readouterr().err
    assert code == 2
    assert words in said
