"""All that is derived from published steps is made again in its order, and a command that fails ends it."""

from __future__ import annotations

import pytest

from benchmarks.pages import atlas

PAGE, PREDICT, FINDINGS = ["page"], ["--write", "docs/predict.md"], ["--findings"]


@pytest.mark.parametrize(
    ("words", "fails", "code", "ran"),
    [
        ([], None, 0, [PAGE, PREDICT, FINDINGS]),
        (["--from", "sources"], None, 0, [["import", "--from", "sources"], PAGE, PREDICT, FINDINGS]),
        ([], PREDICT, 3, [PAGE, PREDICT]),
    ],
)
def test_each_command_in_its_order(monkeypatch, words, fails, code, ran):
    seen = []

    def command(arguments):
        seen.append(list(arguments))
        return 3 if arguments == fails else 0

    for module in ("runners.atlas.command", "benchmarks.pages.predict", "runners.report.command"):
        monkeypatch.setattr(f"{module}.main", command)
    assert atlas.main(words) == code
    assert seen == ran
