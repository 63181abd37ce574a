"""docs/mfu-audit.md is of today's configurations and rules, and what the page says follows from its rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.audit import RULES, account, architectures, frameworks, training_flop
from reports.audit import page

PAGE = Path(__file__).parents[3] / "docs" / "mfu-audit.md"

ROW = re.compile(r"\| (\w+) \| ([\w.-]+) \| ([\d,]+) \| ([\d.]+) \| ([^|]+) \| (\S+) \|")


def rows() -> list[tuple[str, str, int, str, str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    return [(a, b, int(c.replace(",", "")), d, e, f) for a, b, c, d, e, f in ROW.findall(text)]


def test_each_row_of_the_page_is_what_the_rules_say() -> None:
    """The numbers came from the packages, the rules from their source: a change of either is seen here."""
    found = rows()
    assert len(found) > 100
    for name, model, tokens, ratio, causes, unexplained in found:
        architecture = architectures()[model]
        exact = training_flop(architecture, tokens)
        said = {cause: flop for cause, flop in RULES[name](architecture, tokens).items() if flop}
        assert f"{(exact + sum(said.values())) / exact:.3f}" == ratio, (name, model)
        assert {cause.replace("_", " ") for cause in said} == set(causes.split(", ")), (name, model)
        assert unexplained == "0"


def test_the_page_has_every_configuration_and_framework() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = {(name, model) for name, model, *_ in rows()}
    for name in RULES:
        assert f"| {name} |" in text
        tokens = [(model, min(4096, model.positions or 4096)) for model in architectures().values()]
        for model, count in tokens:
            if name == "nanogpt" and model.model_type != "gpt2":
                continue
            causes = {cause: flop for cause, flop in RULES[name](model, count).items() if flop}
            supported = "not_supported" not in causes and not (name == "trl" and model.model_type in NO_TRL)
            assert ((name, model.name) in shown) == bool(causes and supported), (name, model.name)
    for name in frameworks():
        assert name in text


NO_TRL = ("deepseek_v3", "gpt_oss")
"""Types whose configuration TRL cannot read."""


@pytest.mark.parametrize(("added", "explained"), [(0, 1), (7, 0)])
def test_a_page_counts_what_is_explained(added: int, explained: int) -> None:
    model, framework = architectures()["llama-3-8b"], frameworks()["trl"]
    answer = account(model, 512, framework, {"flop": str(training_flop(model, 512) + added)})
    text = page([answer], 512)
    assert f"of 1 numbers, {explained} are explained" in text
    assert ("| trl | exact |" in text) == (not added)
