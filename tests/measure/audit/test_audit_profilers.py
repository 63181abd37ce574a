"""What the profilers that wrap torch's functions say of small modules is what their rules say, for each type."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.audit import Model, causes_of, networks, training_flop
from measure.audit import Question, ask
from tests.measure.audit.test_audit_exact import TYPES, small
from tests.measure.audit.test_audit_networks import SIZES, shrunk, small_llava

TOKENS = 10


def models() -> list[Model]:
    """One of each type."""
    return [
        *(small(kind) for kind in TYPES),
        *(shrunk(name) for name in SIZES),
        small_llava(),
        networks()["qwen2-vl-2b"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["deepspeed", "calflops"])
def test_a_profiler_says_what_its_rule_says_of_every_type(framework: str) -> None:
    asked = [Question(model, 1024 if model.name == "qwen2-vl-2b" else TOKENS) for model in models()]
    said = ask(framework, Path("nowhere"), asked, 300)
    for question, answer in zip(asked, said, strict=True):
        causes = causes_of(question.model, question.tokens, framework)
        expected = training_flop(question.model, question.tokens) + sum(causes.values())
        assert answer.get("flop") == str(expected), (question.model.name, answer)
