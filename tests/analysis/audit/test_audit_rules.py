"""What frameworks' formulas count otherwise, on sizes small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.audit import CAUSES, RULES, Architecture, account, architectures, forward, frameworks, training_flop

SMALL = Architecture(
    name="small",
    family="dense GQA",
    model_type="llama",
    source="made up",
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=2,
    intermediate_size=16,
    vocab_size=32,
    gated=1,
)

TOKENS = 10


def test_the_parts_of_a_small_model() -> None:
    # q and o: 8 × 8; k and v: 8 × 4: 192 weights. 2 × 10 tokens × 192 × 2 layers = 7,680.
    # pairs: 100 × 2 layers; each 4 heads × (2 + 2) multiply-adds: 2 × 200 × 16 = 6,400.
    # MLP: 3 × 8 × 16 = 384 weights: 20 × 384 × 2 = 15,360. Head: 20 × 8 × 32 = 5,120.
    parts = forward(SMALL, TOKENS)
    assert {name: flop for name, flop in parts.items() if flop} == {
        "projections": 7680,
        "attention": 6400,
        "mlp": 15360,
        "head": 5120,
    }
    assert training_flop(SMALL, TOKENS) == 3 * 34560


def test_pairs_of_each_convention_by_brute_force() -> None:
    model = replace(SMALL, sliding_window=3, full_every=2)  # the second of the two layers sees all before it
    places = [(i, j) for i in range(TOKENS) for j in range(TOKENS)]
    causal = sum(j <= i for i, j in places)
    windowed = sum(i - 3 < j <= i for i, j in places)
    for attention, pairs in (("dense", 2 * len(places)), ("causal", 2 * causal), ("mask_exact", causal + windowed)):
        assert forward(model, TOKENS, attention)["attention"] == 2 * pairs * 4 * (2 + 2)


def test_a_convention_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="expected attention one of dense, causal, mask_exact, got 'half'"):
        forward(SMALL, TOKENS, "half")


def test_verl_by_hand() -> None:
    # weights per layer 192 + 384, twice the table of 32 × 8 = 256: 6 × 10 × (2 × 576 + 512) = 99,840;
    # attention 6 × 100 × 2 × 4 × 2 = 9,600
    assert training_flop(SMALL, TOKENS) + sum(RULES["verl"](SMALL, TOKENS).values()) == 99_840 + 9_600


def test_nemos_fallback_by_hand() -> None:
    # a plain MLP of 2 × 8 × 16 weights: 6 × 10 × 2 × (192 + 256) = 53,760; half of attention 9,600; head 15,360
    model = replace(SMALL, model_type="mistral")
    assert (
        training_flop(model, TOKENS) + sum(RULES["nemo_automodel"](model, TOKENS).values()) == 53_760 + 9_600 + 15_360
    )


def test_litgpt_counts_attention_five_times() -> None:
    # 6 × 10 × (2 × 576 weights + two tables of 256 + 5 norms of 8) + 5 × 2 layers × 4 × 8 × 100
    said = 60 * (1152 + 512 + 40) + 5 * 6_400
    assert training_flop(SMALL, TOKENS) + sum(RULES["litgpt"](SMALL, TOKENS).values()) == said


def test_what_no_cause_explains_is_told() -> None:
    exact = training_flop(SMALL, TOKENS)
    answer = account(SMALL, TOKENS, frameworks()["trl"], {"flop": str(exact + 7)})
    assert (answer.flop, answer.unexplained_flop, answer.causes) == (exact + 7, 7, {})


def test_a_package_that_is_not_there_is_a_row() -> None:
    answer = account(SMALL, TOKENS, frameworks()["trl"], {"reason": "not installed"})
    assert (answer.status, answer.reason, answer.flop, answer.ratio) == ("unavailable", "not installed", None, None)


@pytest.mark.parametrize("name", list(RULES))
def test_causes_are_words_of_the_vocabulary(name: str) -> None:
    for model in architectures().values():
        if name != "nanogpt" or model.model_type == "gpt2":
            assert set(RULES[name](model, 4096)) <= set(CAUSES)


def test_every_cause_is_one_of_a_rule() -> None:
    bert = architectures()["bert-base"]
    models = [*architectures().values(), replace(bert, intermediate_size=100)]
    used = {cause for rule in RULES.values() for model in models for cause, flop in rule(model, 256).items() if flop}
    assert used == set(CAUSES)


def test_nanogpts_reading_is_what_its_rule_says() -> None:
    from analysis.audit import reading

    model = architectures()["gpt2"]
    answer = account(model, 1024, frameworks()["nanogpt"], reading(frameworks()["nanogpt"], model, 1024))
    # GPT-2 has 124,439,808 parameters with its 1,024 × 768 positions (its model card): without them 123,653,376
    assert answer.flop == 1024 * (6 * 123_653_376 + 12 * 12 * 768 * 1024)
    assert answer.unexplained_flop == 0
