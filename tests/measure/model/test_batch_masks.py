"""Known answer, definition: pairs that are counted against the masks that models really make, and unknown masks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

import flopledger
from measure.model.attention_masks import has_masks
from tests.measure.model.masked_models import (
    BATCH,
    BATCHES,
    LENGTH,
    PADDED,
    POSITIONS,
    SMALL,
    WIDTH,
    model_of,
)

OF_PAIR = 2 * 2 * WIDTH
"""FLOP of a pair in one layer: a score and its use, 2 FLOP a multiply-add, all heads together as wide as the model."""

CASES = [(name, how) for name in ("llama", "mistral", "gemma3") for how in BATCHES]
CASES += [(name, "no mask") for name in ("mistral without a window", "qwen2", "bert")]


def really_kept(model: torch.nn.Module, kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Pairs of all layers and sequences, from the values of the masks of a real call."""
    original: Any = torch.nn.functional.scaled_dot_product_attention
    found = []

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, **more: Any) -> Any:
        queries, keys = query.shape[-2], key.shape[-2]
        if attn_mask is None:
            one = queries * (queries + 1) // 2 if more.get("is_causal") else queries * keys
            found.append(len(query) * one)
        else:
            kept = attn_mask if attn_mask.dtype == torch.bool else attn_mask > torch.finfo(attn_mask.dtype).min / 2
            assert (kept == kept[:, :1]).all()  # the same for each head
            found.append(int(kept[:, :1].expand(len(query), 1, queries, keys).sum()))
        return original(query, key, value, attn_mask, **more)

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
        model(torch.randint(0, 50, (BATCH, LENGTH)), **kwargs)
    return sum(found)


@pytest.mark.parametrize(("name", "how"), CASES)
def test_the_mask_exact_count_is_that_of_the_pairs_of_the_real_masks(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, kwargs = model_of(name, attn_implementation="sdpa"), BATCHES[how]
    inputs = torch.randint(0, 50, (BATCH, LENGTH))
    found = flopledger.count(model, inputs, kwargs=kwargs)
    less = OF_PAIR * (2 * BATCH * LENGTH**2 - really_kept(model, kwargs, monkeypatch))  # of two layers
    assert found.by_convention("mask_exact") == (found.forward_flop - less, found.backward_flop - 2 * less)


def without_values() -> torch.Tensor:
    return torch.ones(BATCH, LENGTH, dtype=torch.long, device="meta")


UNKNOWN: dict[str, Callable[[], dict[str, Any]]] = {
    "padding": lambda: {"attention_mask": PADDED},
    "packed": lambda: {"position_ids": POSITIONS, "use_cache": False},
    "no values": lambda: {"attention_mask": without_values()},
    "queries by keys": lambda: {"attention_mask": torch.ones(BATCH, 1, LENGTH, LENGTH)},
}


@pytest.mark.parametrize("how", UNKNOWN)
def test_of_a_mask_of_the_batch_the_pairs_are_not_known_but_those_up_to_the_diagonal_are(how: str) -> None:
    model, inputs = model_of("llama", attn_implementation="sdpa"), torch.randint(0, 50, (BATCH, LENGTH))
    known = flopledger.count(model, inputs)
    found = flopledger.count(model, inputs, kwargs=UNKNOWN[how]())
    assert found.by_convention("mask_exact") == (None, None)
    assert found.by_convention("causal") == known.by_convention("causal")
    assert found.attention is not None
    assert "a mask or positions of its own" in found.attention.reasons["mask_exact"]


def test_inputs_are_looked_at_by_name_by_position_and_inside_of_mappings() -> None:
    model = model_of("bert")
    words, whole = torch.zeros(BATCH, LENGTH, dtype=torch.long), torch.ones(BATCH, LENGTH)
    assert has_masks(model, (words, PADDED), {})
    assert not has_masks(model, (words, whole), {})
    assert has_masks(model, ({"batch": {"attention_mask": PADDED}},), {})
    assert has_masks(model, (words,), {"encoder_hidden_states": torch.ones(BATCH, LENGTH, WIDTH)})


@pytest.mark.parametrize("family", ["CLIP", "CLIPSeg", "MetaClip2", "OwlViT", "Owlv2", "XCLIP"])
def test_text_models_like_clip_are_causal_though_their_modules_say_otherwise(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, kind = (getattr(transformers, f"{family}Text{part}") for part in ("Config", "Model"))
    model = kind(config(**SMALL, attn_implementation="sdpa")).eval()
    plain = kind(config(**SMALL, attn_implementation="eager")).eval()
    inputs = torch.randint(0, 50, (BATCH, LENGTH))
    for kwargs in ({}, {"attention_mask": torch.ones_like(PADDED)}):
        found = flopledger.count(model, (inputs,), kwargs=kwargs)
        less = OF_PAIR * (2 * BATCH * LENGTH**2 - really_kept(model, kwargs, monkeypatch))  # of two layers
        exact = found.forward_flop - less, found.backward_flop - 2 * less
        assert found.by_convention("mask_exact") == exact
        assert flopledger.count(plain, (inputs,), kwargs=kwargs).by_convention("mask_exact") == exact
