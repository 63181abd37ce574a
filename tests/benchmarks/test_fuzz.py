"""Each cheap parser reads damaged inputs and fails in our own ways alone; the fuzzer finds what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fuzz.__main__ import fuzz, main
from benchmarks.fuzz.parsers import CORPUS, MADE, PARSERS

QUICK = {
    "words": 20,
    "gate": 10,
    "formula": 60,
    "point": 60,
    "peaks": 60,
    "model": 60,
    "toml": 60,
    "deepspeed": 60,
    "pyprof": 20,
}
"""Parser → inputs, as many as a second takes; all others: `python -m benchmarks.fuzz`."""


CI = Path(__file__).parents[2] / ".ci/run"


def test_every_parser_has_a_corpus():
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} == {*PARSERS} - {*MADE}


@pytest.mark.parametrize("parser", QUICK)
def test_damaged_inputs_are_read_or_refused(parser):
    findings, done = fuzz(parser, QUICK[parser], seed=1)
    assert [(finding.what, finding.data[:200]) for finding in findings] == []
    assert done == QUICK[parser]


def raises(fault):
    def read(path):
        if b"a" * 3 not in path.read_bytes():
            raise fault

    return read


def test_the_command_of_continuous_integration_fails_for_one_planted_fault(monkeypatch, capsys):
    """Every parser is in it, and a parser that raises what is not ours among them ends it with 1."""
    planted = replace(PARSERS["peaks"], read=raises(KeyError("x")))
    monkeypatch.setattr(type(planted), "seeds", lambda *_: [b"aaa"])
    only = {"peaks": planted}
    monkeypatch.setattr("benchmarks.fuzz.__main__.PARSERS", only)
    line = next(line for line in CI.read_text().splitlines() if "benchmarks.fuzz" in line)
    words = line.partition("benchmarks.fuzz ")[2].split()
    assert "--parser" not in words
    assert main(["--executions", "12", *words[words.index("--seed") :]]) == 1
    assert "KeyError: 'x'" in capsys.readouterr().out
    only["peaks"] = replace(planted, read=lambda path: None)
    assert main(["--executions", "12"]) == 0
