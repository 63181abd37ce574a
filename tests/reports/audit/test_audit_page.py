"""docs/mfu-audit.md is of today's configurations and rules, and what the page says follows from its rows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from analysis.audit import (
    CAUSES,
    RULES,
    Model,
    NetworkSizes,
    account,
    architectures,
    causes_of,
    configurations,
    frameworks,
    reading,
    training_flop,
)
from reports.audit import page
from reports.audit.markdown import FAULTS
from runners.audit import options

PAGE = Path(__file__).parents[3] / "docs" / "mfu-audit.md"

ROW = re.compile(r"\| (\w+) \| ([\w.-]+) \| ([\d,]+) \| ([\d.]+) \| ([^|]+) \| (\S+) \|")


def rows() -> list[tuple[str, str, int, str, str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    return [(a, b, int(c.replace(",", "")), d, e, f) for a, b, c, d, e, f in ROW.findall(text)]


def length(model: Model) -> int:
    """Tokens that the page asks of it."""
    if isinstance(model, NetworkSizes) and model.is_fixed:
        return model.positions
    return min(4096, model.positions or 4096)


def differences(name: str, model: Model) -> dict[str, int]:
    return {cause: flop for cause, flop in causes_of(model, length(model), name).items() if flop}


def test_each_row_of_the_page_is_what_the_rules_say() -> None:
    """The numbers came from the packages, the rules from their source: a change of either is seen here."""
    found = rows()
    assert len(found) > 350
    for name, model, tokens, ratio, causes, unexplained in found:
        configuration = configurations()[model]
        exact = training_flop(configuration, tokens)
        said = differences(name, configuration)
        assert tokens == length(configuration)
        assert f"{(exact + sum(said.values())) / exact:.3f}" == ratio, (name, model)
        assert {cause.replace("_", " ") for cause in said} == set(causes.split(", ")), (name, model)
        assert unexplained == "0"


def test_the_page_has_every_configuration_and_framework() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = {(name, model) for name, model, *_ in rows()}
    for name in RULES:
        assert f"| {name} |" in text
        for model in configurations().values():
            assert ((name, model.name) in shown) == has_row(name, model), (name, model.name)
    for name in frameworks():
        assert name in text


def has_row(name: str, model: Model) -> bool:
    """A number that is neither exact nor 0."""
    if frameworks()[name].how == "read" and "flop" not in reading(frameworks()[name], model, length(model)):
        return False
    if model.model_type in NONE.get(name, ()):
        return False
    try:
        causes = differences(name, model)
    except KeyError:
        return False
    return bool(causes) and "not_supported" not in causes


NO_EXPERTS = ("mixtral", "deepseek_v3", "gpt_oss")

FOUNDRY = (*NO_EXPERTS, "qwen3_moe", "bert", "modernbert")

UNGROUPED = ("gpt2", "bert", "modernbert")

NONE = {
    "trl": (*NO_EXPERTS, *UNGROUPED),
    "llm_foundry": FOUNDRY,
    "composer": FOUNDRY,
    "maxtext": ("nanochat", "bert", "modernbert"),
}
"""Types whose configuration TRL cannot read; that LLM Foundry counts by megablocks, or does not train; that MaxText
does not train."""


def test_each_cause_is_explained() -> None:
    for name, _, _, _, causes, _ in rows():
        assert {cause.replace(" ", "_") for cause in causes.split(", ")} <= set(CAUSES), name


@pytest.mark.parametrize(("added", "explained"), [(0, 1), (7, 0)])
def test_a_page_counts_what_is_explained(added: int, explained: int) -> None:
    model, framework = architectures()["llama-3-8b"], frameworks()["trl"]
    answer = account(model, 512, framework, {"flop": str(training_flop(model, 512) + added)})
    text = page([answer], 512).replace("\n", " ")
    assert f"of 1 numbers, {explained} are explained" in text
    assert ("| trl | exact |" in text) == (not added)


UPSTREAM = PAGE.parent / "upstream"


def test_each_fault_has_a_reproduction_its_author_can_run() -> None:
    """A draft of a report with lines to run and what they say, or a command of the audit that parses."""
    text = PAGE.read_text(encoding="utf-8")
    assert FAULTS.strip() in text, "the page has another text than the command would write"
    bullets = FAULTS.split("\n* ")[1:]
    assert len(bullets) > 10
    linked = set()
    for bullet in bullets:
        drafts = re.findall(r"\(upstream/([\w-]+\.md)\)", bullet)
        commands = re.findall(r"`python -m runners\.audit ([^`]+)`", bullet.replace("\n", " "))
        assert drafts or commands, bullet
        for command in commands:
            asked = options.parser().parse_args(" ".join(command.split()).replace("NAME", "verl").split())
            assert set(asked.models) <= set(configurations())
            assert set(asked.frameworks) <= set(frameworks())
        linked.update(drafts)
    assert linked == {each.name for each in UPSTREAM.glob("*.md")}
    for name in linked:
        draft = (UPSTREAM / name).read_text(encoding="utf-8")
        first, *blocks = draft.split("```\n")
        assert "Draft of a report, not sent." in first
        assert "A fix:" in draft, name
        assert len(blocks) >= 2, f"{name} has no lines to run"
        assert re.search(r"[Ii]t (prints|ends with)", blocks[1]), f"{name} does not say what its lines say"
        ast.parse(blocks[0])
