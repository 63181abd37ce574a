"""What formulas of people say of a step, and by which operations it differs: every part is derived beside it."""

from __future__ import annotations

import json

import pytest

from reports.count.pasted import parse
from reports.count.references import ATTENTION, EMBEDDED, OTHERS, WEIGHTS, StepTerms, formula_of
from runners.count import command
from tests.support.fakes.commands import running

STEP = StepTerms(
    {"L": 2, "H": 3, "Q": 4, "T": 5, "V": 7, "B": 11, "E": 84},
    {WEIGHTS: 1000, EMBEDDED: 84, OTHERS: 16},
    {WEIGHTS: 100, ATTENTION: 10},
    {WEIGHTS: 290, ATTENTION: 30},
)
TOKENS = 5 * 11


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("6N", {WEIGHTS: 6000 * TOKENS, EMBEDDED: 6 * 84 * TOKENS, OTHERS: 96 * TOKENS}),
        ("6n_nonembedding", {WEIGHTS: 6000 * TOKENS, EMBEDDED: 0, OTHERS: 96 * TOKENS}),
        ("palm", {WEIGHTS: 6000 * TOKENS, EMBEDDED: 504 * TOKENS, OTHERS: 96 * TOKENS, ATTENTION: 1440 * TOKENS}),
        ("megatron", {WEIGHTS: TOKENS * (72 * 2 * 144 + 6 * 12 * 7), ATTENTION: TOKENS * 12 * 5 * 2 * 12}),
        ("3x-forward", {WEIGHTS: 300, ATTENTION: 30}),
        ("12LHQT*T*B", {ATTENTION: 1440 * TOKENS}),
        ("0.5 (L + V)", {WEIGHTS: 4.5}),
        ("2N(B)**2", {WEIGHTS: 242_000, EMBEDDED: 2 * 84 * 121, OTHERS: 32 * 121}),
    ],
)
def test_each_term_stands_for_its_operations(text, terms):
    assert STEP.terms(formula_of(text)) == terms


@pytest.mark.parametrize("text", ["foo", "6X", "N+", "B**9**9", "B**9 ** 9", "B**99", "B**N", "__import__", "6", "(N"])
def test_what_is_no_formula_is_refused(text):
    assert formula_of(text) == ""
    if text != "6":
        with pytest.raises(ValueError, match="megatron, 3x_forward or an expression in N, L, H, Q, T, V, B; got"):
            parse(text)


def test_a_letter_that_a_model_has_not_is_named():
    with pytest.raises(ValueError, match="the model has no T"):
        StepTerms({"B": 1}, {}, {}, {}).terms("6*N*T*B")


def test_a_transformer_differs_from_its_formulas_by_what_they_leave_out(capsys):
    """d = 64, 2 layers, 2 heads of 32, 32 tokens of 300 words, 3 samples; the head has the embedding's weights."""
    sizes = "d_model=64,layers=2,heads=2,seq=32,vocab=300"
    arguments = ("gpt", "--size", sizes, "--batch-size", 3, "--explain", "palm,megatron", "--format", "json")
    code, out, _ = running(command.main, capsys)(*arguments)
    palm, megatron = json.loads(out)
    tokens = 3 * 32
    layers, head, attention = 72 * 2 * 64**2 * tokens, 6 * 64 * 300 * tokens, 12 * 2 * 64 * 32 * tokens
    assert code == 0
    assert megatron["given"] == megatron["exact_flop"] == layers + head + attention
    assert megatron["causes"] == []
    causes = {each["cause"]: each["flop"] for each in palm["causes"]}
    # 300 words and 32 positions are looked up; 4 d² + d a layer of biases and norms make no product
    assert causes[EMBEDDED] == 6 * 64 * (300 + 32) * tokens
    assert causes[WEIGHTS] == -head
    assert ATTENTION not in causes
    assert palm["given"] - sum(causes.values()) == palm["exact_flop"]
