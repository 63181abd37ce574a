"""The rules of transformers' attention modules, beside the masks that they really make, and the FLOP that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import flopledger
from analysis.operators.attention_pairs import pairs_of
from measure.model.module_masks import mask_rules

ROOT = Path(__file__).parents[3]

LENGTH, WINDOW, LAYERS = 24, 7, 2
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "vocab_size": 50,
    "max_position_embeddings": 64,
}  # fmt: skip
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}

MODELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "llama": ("Llama", SMALL | GROUPED, ["causal"] * 2),
    "mistral": ("Mistral", SMALL | GROUPED | {"sliding_window": WINDOW}, [f"window:{WINDOW}"] * 2),
    "mistral without a window": ("Mistral", SMALL | GROUPED | {"sliding_window": None}, ["causal"] * 2),
    "qwen2": (
        "Qwen2",
        SMALL
        | {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
        ["causal", f"window:{WINDOW}"],
    ),
    "gemma3": (
        "Gemma3Text",
        SMALL | GROUPED | {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
        [f"window:{WINDOW}", "causal"],
    ),
    "bert": ("Bert", SMALL | NO_DROPOUT, ["all"] * 2),
}


def model_of(name: str, **more: Any) -> torch.nn.Module:
    family, options, _ = MODELS[name]
    config = getattr(transformers, f"{family}Config")(**options | more)
    model: torch.nn.Module = getattr(transformers, f"{family}Model")(config).eval()
    return model


def kept_pairs(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pairs that each call of attention really keeps, from the values of its mask."""
    original, found = torch.nn.functional.scaled_dot_product_attention, []

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, **more: Any) -> Any:
        queries, keys = query.shape[-2], key.shape[-2]
        if attn_mask is None:
            found.append(queries * (queries + 1) // 2 if more.get("is_causal") else queries * keys)
        else:
            kept = attn_mask if attn_mask.dtype == torch.bool else attn_mask > torch.finfo(attn_mask.dtype).min / 2
            found.append(int(kept.expand(1, 1, queries, keys).sum()))
        return original(query, key, value, attn_mask, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    with torch.no_grad():
        model(torch.randint(0, 50, (1, LENGTH)))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_rule_keeps_the_pairs_of_the_real_mask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(name, attn_implementation="sdpa")
    rules = MODELS[name][2]
    found = mask_rules(model)
    assert [rule for path, rule in found.items() if path.endswith(("self_attn", "self"))] == rules
    assert kept_pairs(model, monkeypatch) == [pairs_of(rule, LENGTH, LENGTH) for rule in rules]


@pytest.mark.parametrize("name", MODELS)
def test_conventions_count_the_pairs_that_they_name(name: str) -> None:
    """Scores and their use: 2 FLOP × 2 products × heads × width of a head for each pair, twice that backward."""
    model = model_of(name, attn_implementation="sdpa")
    found = flopledger.count(model, torch.randint(0, 50, (3, LENGTH)))
    of_pair = 2 * 2 * 32 * 3
    full, half = LENGTH**2, LENGTH * (LENGTH + 1) // 2
    left_out = {
        "causal": sum(full - half for rule in MODELS[name][2] if rule != "all"),
        "mask_exact": sum(full - pairs_of(rule, LENGTH, LENGTH) for rule in MODELS[name][2]),
    }
    forward, backward = found.forward_flop, found.backward_flop
    assert forward is not None
    assert backward is not None
    assert found.by_convention("dense") == (forward, backward)
    for convention, pairs in left_out.items():
        assert found.by_convention(convention) == (forward - of_pair * pairs, backward - 2 * of_pair * pairs)
    assert found.by_convention("hardware") == (forward, backward), "a tile of the CPU's kernel has 512 keys"


def test_plain_products_of_a_causal_module_count_as_the_whole_operator_does() -> None:
    """With dropout a CPU takes attention apart."""
    inputs = torch.randint(0, 50, (2, LENGTH))
    counts = [
        flopledger.count(model_of("llama", attn_implementation=how, attention_dropout=dropout).train(), inputs)
        for how, dropout in (("sdpa", 0.0), ("sdpa", 0.1), ("eager", 0.0))
    ]
    for convention in ("dense", "causal", "mask_exact"):
        assert len({count.by_convention(convention) for count in counts}) == 1, convention


class Attend(torch.nn.Module):
    """Attention with a mask of its own, or with the call's."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked, self.linear = masked, torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        mask = torch.ones(6, 6, dtype=torch.bool).tril() if self.masked else None
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask, is_causal=not self.masked)


def test_a_mask_of_ones_own_is_not_known_and_one_that_is_asked_for_is() -> None:
    inputs = torch.randn(2, 4, 6, 8)
    known, unknown = (flopledger.count(Attend(masked), inputs) for masked in (False, True))
    assert known.forward_flop is not None
    assert known.by_convention("causal")[0] == known.forward_flop - 2 * 2 * 2 * 4 * 8 * (36 - 21)
    assert unknown.forward_flop == known.forward_flop
    assert unknown.by_convention("mask_exact") == (None, None)
    assert unknown.attention is not None
    assert "the values of a mask are not known" in unknown.attention.reasons["causal"]
    with pytest.raises(ValueError, match=r"expected one of dense, causal, mask_exact, hardware, got 'half'"):
        known.by_convention("half")


def test_the_table_of_the_conventions_follows_from_the_sizes() -> None:
    """Llama-3-8B: 6 FLOP for each token and weight of a product, 12 · width for each layer and pair."""
    layers, width, inner, vocabulary = 32, 4096, 14336, 128256
    weights = layers * (2 * width * width + 2 * width * width // 4 + 3 * width * inner) + width * vocabulary
    text = (ROOT / "docs" / "conventions.md").read_text(encoding="utf-8")
    for tokens in (2048, 8192, 32768, 131072):
        dense, causal = (
            6 * weights * tokens + 12 * layers * width * pairs for pairs in (tokens**2, tokens * (tokens + 1) // 2)
        )
        row = f"| {tokens:,} | {dense / 1e15:.3g} | {causal / 1e15:.3g} | {dense / causal:.3f} |"
        assert row in text


def test_the_table_of_windows_follows_from_the_sizes() -> None:
    """Mistral-7B: the same, and a window of 4,096 leaves the pairs whose key is 4,096 or more before the query."""
    layers, width, inner, vocabulary, window = 32, 4096, 14336, 32000, 4096
    weights = layers * (2 * width * width + 2 * width * width // 4 + 3 * width * inner) + width * vocabulary
    text = (ROOT / "docs" / "conventions.md").read_text(encoding="utf-8")
    for tokens in (2048, 8192, 32768, 131072):
        causal, beyond = tokens * (tokens + 1) // 2, max(tokens - window, 0)
        every = tokens**2, causal, causal - beyond * (beyond + 1) // 2
        dense, half, kept = (6 * weights * tokens + 12 * layers * width * pairs for pairs in every)
        flop = " | ".join(f"{each / 1e15:.3g}" for each in (dense, half, kept))
        assert f"| {tokens:,} | {flop} | {dense / half:.3f} | {dense / kept:.3f} |" in text


def test_the_count_of_a_layer_with_windows_is_the_closed_form() -> None:
    config = transformers.MistralConfig(num_hidden_layers=1, vocab_size=32000, sliding_window=4096)
    with torch.device("meta"):
        model = transformers.MistralForCausalLM(config).train()
        tokens = torch.zeros(1, 8192, dtype=torch.long)
    found = flopledger.count(model, tokens, loss_of=lambda output: output.logits)
    weights = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 4096 * 32000
    kept = 8192 * 8193 // 2 - 4096 * 4097 // 2
    assert sum(flop or 0 for flop in found.by_convention("mask_exact")) == 6 * weights * 8192 + 12 * 4096 * kept


def test_the_count_of_that_model_is_the_closed_form() -> None:
    config = transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=1, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=128256,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).train()
        tokens = torch.zeros(1, 2048, dtype=torch.long)
    found = flopledger.count(model, tokens, loss_of=lambda output: output.logits)
    weights = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 4096 * 128256
    assert found.model_flop == 6 * weights * 2048 + 12 * 4096 * 2048**2
    causal = [flop for flop in found.by_convention("causal") if flop is not None]
    assert sum(causal) == 6 * weights * 2048 + 12 * 4096 * 2048 * 2049 // 2


def test_a_net_without_attention_counts_the_same_by_all() -> None:
    found = flopledger.count(torch.nn.Linear(8, 4), torch.randn(2, 8))
    assert found.by_convention("causal") == found.by_convention("mask_exact") == (128, 128)
