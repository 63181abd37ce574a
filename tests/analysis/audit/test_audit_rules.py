"""What frameworks' formulas count otherwise, on sizes small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.audit import (
    CAUSES,
    RULES,
    Architecture,
    Model,
    account,
    architectures,
    causes_of,
    configurations,
    forward,
    frameworks,
    reading,
    training_flop,
)
from analysis.audit.profiler_rules import rounded

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


def said_by(name: str, model: Model, tokens: int) -> int:
    """What a framework says by its rule."""
    return training_flop(model, tokens) + sum(causes_of(model, tokens, name).values())


def test_profilers_take_a_step_for_three_passes() -> None:
    # 34,560 of products, and a SiLU of 10 × 16 elements in each of two layers, all three times
    assert said_by("deepspeed", SMALL, TOKENS) == 3 * (34_560 + 2 * 160)
    # calflops does not see the 6,400 of attention
    assert said_by("calflops", SMALL, TOKENS) == 3 * (34_560 + 2 * 160 - 6_400)


def test_a_profiler_counts_frozen_weights_as_trained() -> None:
    network = configurations()["llama-3-8b-lora"]
    whole = said_by("deepspeed", network.decoder, 64)
    # rank 16, in 32 layers, beside each matrix two thin ones: 4,096 + 4,096 wide for q and o, 4,096 + 1,024 for k and
    # v, 4,096 + 14,336 for the MLP's three
    thin = 2 * 64 * 32 * 16 * (2 * 8_192 + 2 * 5_120 + 3 * 18_432)
    assert said_by("deepspeed", network, 64) == whole + 3 * thin


def test_an_einsum_is_counted_as_numpy_prints_it() -> None:
    # numpy prints one more than 2 × 16 × 16 × 2, with four digits of 123,456 + 1
    assert (rounded(1_024), rounded(123_456)) == (1_025, 123_500)
    printed = np.einsum_path("ij,jk->ik", np.zeros((16, 16)), np.zeros((16, 2)), optimize="optimal")[1]
    assert "Optimized FLOP count:  1.025e+03" in printed


def test_composer_keeps_24_bits_of_what_llm_foundry_says() -> None:
    model = architectures()["smollm2-135m"]
    said = said_by("llm_foundry", model, 1001)
    assert said_by("composer", model, 1001) == int(np.float32(said)) != said


def test_what_no_cause_explains_is_told() -> None:
    exact = training_flop(SMALL, TOKENS)
    answer = account(SMALL, TOKENS, frameworks()["trl"], {"flop": str(exact + 7)})
    assert (answer.flop, answer.unexplained_flop, answer.causes) == (exact + 7, 7, {})


def test_a_package_that_is_not_there_is_a_row() -> None:
    answer = account(SMALL, TOKENS, frameworks()["trl"], {"reason": "not installed"})
    assert (answer.status, answer.reason, answer.flop, answer.ratio) == ("unavailable", "not installed", None, None)


def causes(name: str, model: Model) -> set[str]:
    """Of a framework that has a rule for the model."""
    try:
        return {cause for cause, flop in causes_of(model, 256, name).items() if flop}
    except KeyError:
        return set()


def test_every_cause_is_one_of_a_rule() -> None:
    bert = architectures()["bert-base"]
    models = [*configurations().values(), replace(bert, intermediate_size=100)]
    assert set().union(*(causes(name, model) for name in RULES for model in models)) == set(CAUSES)


def test_nanogpts_reading_is_what_its_rule_says() -> None:
    model = architectures()["gpt2"]
    answer = account(model, 1024, frameworks()["nanogpt"], reading(frameworks()["nanogpt"], model, 1024))
    # GPT-2 has 124,439,808 parameters with its 1,024 × 768 positions (its model card): without them 123,653,376
    assert answer.flop == 1024 * (6 * 123_653_376 + 12 * 12 * 768 * 1024)
    assert answer.unexplained_flop == 0


@pytest.mark.parametrize("name", ["nanochat", "megatron_lm"])
def test_a_reading_is_what_its_rule_says_of_each_model_that_it_has(name: str) -> None:
    numbers = 0
    for model in configurations().values():
        said = reading(frameworks()[name], model, 512)
        if "flop" in said:
            numbers += 1
            assert account(model, 512, frameworks()[name], said).unexplained_flop == 0, model.name
    assert numbers >= 2


def test_megatrons_reading_by_hand() -> None:
    # weights per layer 192 + 384 (SwiGLU), head 256: 6 × 10 × (2 × 576 + 256); half of 200 pairs × 16 × 2 × 3
    assert reading(frameworks()["megatron_lm"], SMALL, TOKENS)["flop"] == str(60 * 1408 + 9_600)


def test_maxtext_halves_what_a_window_sees_less_its_own_corner() -> None:
    # one of two layers sees 3 of 10 keys: 10 × 10 ÷ 2 and 10 × 3 - 3 × 3 ÷ 2 pairs, × 16 multiply-adds × 2 × 3
    model = replace(SMALL, model_type="gemma3_text", sliding_window=3, full_every=2)
    products = 60 * (2 * 576 + 256)
    said = training_flop(model, TOKENS) + sum(causes_of(model, TOKENS, "maxtext").values())
    assert 2 * said == 2 * products + (100 + 51) * 96
    # what the masks leave: 55 and 1 + 2 + 8 × 3 = 27 pairs
    assert training_flop(model, TOKENS, "mask_exact") == products + (55 + 27) * 96


def test_a_window_on_both_sides_by_brute_force() -> None:
    model = replace(SMALL, model_type="modernbert", sliding_window=6, full_every=2)  # the first of the two sees all
    near = sum(abs(i - j) <= 3 for i in range(TOKENS) for j in range(TOKENS))
    assert forward(model, TOKENS, "mask_exact")["attention"] == 2 * (100 + near) * 16
    assert forward(model, TOKENS, "causal")["attention"] == 2 * 200 * 16, "no mask of an encoder is causal"
