"""The command: what it prints without a package, its documents, and what it refuses."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import subprocess
import sys
import threading
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.audit import architectures, frameworks, training_flop
from measure.audit import AuditedPackage
from runners.audit import command, options
from runners.audit.command import main
from tests.support.fakes.commands import running

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


def asked_of_pip(arguments: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[list[str]]:
    """The last two words of each call of pip, which installs nothing here: the folder's name, and the package."""
    asked: list[list[str]] = []

    def run(words: list[str], **_: object) -> SimpleNamespace:
        asked.append([Path(words[-2]).name, words[-1]])
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(command, "subprocess", SimpleNamespace(run=run))
    assert main(["gpt2", "--tokens", "8", "--install", "--formulas", str(folder), "--frameworks", *arguments]) == 0
    return asked


def test_what_is_installed_is_what_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Composer's monitor asks LLM Foundry's model; nanoGPT is no package; an empty folder is not enough."""
    known = frameworks()
    (tmp_path / "llm_foundry").mkdir()
    asked = asked_of_pip(["composer,nanogpt"], monkeypatch, tmp_path)
    names = ("llm_foundry", "composer")
    assert asked == [[name, f"{known[name].package}=={known[name].version}"] for name in names]
    assert "llm-foundry" in " ".join(capsys.readouterr().out.split()), "the row says which package is missing"


def test_a_package_of_this_environment_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = AuditedPackage(frameworks()["trl"].version, tmp_path)
    monkeypatch.setattr(command, "_package_of", lambda options, name: here)
    monkeypatch.setattr(command, "_answers", lambda *_: [])
    assert asked_of_pip(["trl"], monkeypatch, tmp_path) == []


def test_after_an_interrupt_no_framework_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time: the first is interrupted; the second, which has begun, ends when the pool has been told to."""
    begun: list[str] = []
    told = threading.Event()

    class Pool(ThreadPoolExecutor):
        def __init__(self, _: int) -> None:
            super().__init__(1)

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            told.set()
            super().shutdown(wait)

    def answers(name: str, *_: object) -> list[object]:
        begun.append(name)
        if name == "first":
            raise KeyboardInterrupt
        assert told.wait(60)
        return []

    monkeypatch.setattr(command, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(command, "_answers", answers)
    with pytest.raises(KeyboardInterrupt):
        command._all_answers(["first", "second", "third", "fourth"], [], Namespace())
    assert set(begun) <= {"first", "second"}


def test_versions_are_known_before_the_formulas_run_and_a_missing_package_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name == "transformers":
            raise importlib.metadata.PackageNotFoundError(name)
        return "9.9"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert command._run_words().endswith(", torch 9.9 and no transformers.")

    def fails() -> str:
        raise ValueError("no words")

    monkeypatch.setattr(command, "_run_words", fails)
    monkeypatch.setattr(command, "_all_answers", lambda *_: pytest.fail("formulas ran first"))
    asked = options.parser().parse_args(["--suite", "audit", "--page", str(tmp_path / "page.md")])
    with pytest.raises(ValueError, match="no words"):
        command._run(asked)


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
        (["gpt2", "--suite", "audit"], "expected no MODEL with it"),
        (["--suite", "audit", "--page", "x.md", "--frameworks", "trl"], "expected no --frameworks with it"),
        (["--suite", "audit", "--page", "."], "expected a file, got the directory"),
        (["gpt2", "--peaks"], "--peaks: goes without MODEL"),
        (["--suite", "audit", "--peaks"], "--peaks: goes without --suite"),
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


GATE = "framework,model,flop,unexplained_flop\n" + "".join(f"trl,m{n},{n},0\n" for n in range(20))


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [
        (GATE, 0, "20 numbers, each difference has its causes"),
        (GATE + "trl,odd,7,3\n", 1, "trl odd: 3 FLOP have no cause"),
        (GATE + "verl,m,,\n", 1, "verl: expected at least 20 numbers, got 0"),
    ],
)
def test_the_gate_of_ci_fails_on_what_has_no_cause(rows: str, code: int, words: str) -> None:
    command = [sys.executable, str(ROOT / ".ci" / "audit.py")]
    ended = subprocess.run(command, input=rows, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (code, words)


def test_a_picture_has_its_own_number_of_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("vit-base", "--frameworks", "trl", "--formulas", tmp_path, "--format", "json")
    (tmp_path / "trl").mkdir()
    found = json.loads(audit(capsys, *line))
    assert found["tokens"] == 14 * 14 + 1
    exact = found["exact"]["dense"]
    # the embedding of 196 patches has the gradient of its weights alone: 2 × 196 × 3 × 16 × 16 × 768 less than twice
    assert exact["backward_flop"] == 2 * exact["forward_flop"] - 2 * 196 * 768 * 768


def test_a_page_that_cannot_be_written_is_said_before_any_formula_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_all_answers", lambda *_: pytest.fail("formulas ran first"))
    (tmp_path / "file").write_text("")
    assert main(["--suite", "audit", "--page", str(tmp_path / "file" / "page.md")]) == 3
    said = capsys.readouterr().err
    assert "page.md could not be written" in said
    assert len(said.splitlines()) == 1


def test_a_model_that_is_named_twice_is_asked_about_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("gpt2", "gpt2", "--tokens", 1024, "--frameworks", "nanogpt", "--formulas", tmp_path)
    rows = list(csv.DictReader(io.StringIO(audit(capsys, *line, "--format", "csv"))))
    assert [row["model"] for row in rows] == ["gpt2"]


GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}


def test_a_configuration_of_ones_own_has_the_same_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    line = ("--tokens", 1024, "--frameworks", "nanogpt", "--formulas", tmp_path, "--format", "json")
    own, named = (json.loads(audit(capsys, name, *line)) for name in (f"hf:{tmp_path}", "gpt2"))
    assert own["model"] == f"hf:{tmp_path}"
    assert (own["exact"], own["frameworks"]) == (named["exact"], named["frameworks"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory: expected the config.json of a model"),
        ("[1]", "expected an object with sizes, got list"),
        ("{", "hf:"),
        ('{"model_type": "llama"}', "expected a whole number from 1 as hidden_size, got None"),
        (json.dumps(GPT2 | {"n_positions": 8}), "has 8 positions, got 1024"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_line(
    content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_text(content)
    code, out, err = running(main, capsys)(f"hf:{file}", "--tokens", 1024, "--formulas", tmp_path)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
