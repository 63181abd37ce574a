"""Padding and packed sequences of a batch: the pairs that are counted beside the masks that the models really make."""

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
import transformers

import flopledger
from analysis.operators.attention_pairs import packed_pairs, padded_pairs, pairs_of
from measure.model.batch_masks import batch_mask
from tests.measure.model.masked_models import (
    BATCH,
    BATCHES,
    LENGTH,
    NO_DROPOUT,
    PADDED,
    SMALL,
    WIDTH,
    model_of,
)

OF_PAIR = 2 * 2 * WIDTH
"""FLOP of a pair in one layer: a score and its use, 2 FLOP a multiply-add, all heads together as wide as the model."""

CASES = [(name, how) for name in ("llama", "mistral", "gemma3") for how in BATCHES] + [("bert", "padding")]
CASES += [(name, "no mask") for name in ("mistral without a window", "qwen2", "bert")]


def really_kept(model: torch.nn.Module, kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Pairs of all layers and sequences, from the values of the masks of a real call."""
    return sum(kept_by_sizes(model, kwargs, monkeypatch).values())


def kept_by_sizes(
    model: torch.nn.Module, kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Counter[tuple[int, int]]:
    """The same by (queries, keys)."""
    original: Any = torch.nn.functional.scaled_dot_product_attention
    found: Counter[tuple[int, int]] = Counter()

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, **more: Any) -> Any:
        queries, keys = query.shape[-2], key.shape[-2]
        if attn_mask is None:
            one = queries * (queries + 1) // 2 if more.get("is_causal") else queries * keys
            found[queries, keys] += len(query) * one
        else:
            kept = attn_mask if attn_mask.dtype == torch.bool else attn_mask > torch.finfo(attn_mask.dtype).min / 2
            assert (kept == kept[:, :1]).all()  # the same for each head
            found[queries, keys] += int(kept[:, :1].expand(len(query), 1, queries, keys).sum())
        return original(query, key, value, attn_mask, **more)

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
        model(torch.randint(0, 50, (BATCH, LENGTH)), **kwargs)
    return found


@pytest.mark.parametrize(("name", "how"), CASES)
def test_the_mask_exact_count_is_that_of_the_pairs_of_the_real_masks(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, kwargs = model_of(name, attn_implementation="sdpa"), BATCHES[how]
    inputs = torch.randint(0, 50, (BATCH, LENGTH))
    found = flopledger.count(model, inputs, kwargs=kwargs)
    less = OF_PAIR * (2 * BATCH * LENGTH**2 - really_kept(model, kwargs, monkeypatch))  # of two layers
    assert found.by_convention("mask_exact") == (found.forward_flop - less, found.backward_flop - 2 * less)


def test_without_values_of_a_mask_the_pairs_are_not_known_but_those_up_to_the_diagonal_are() -> None:
    model, inputs = model_of("llama", attn_implementation="sdpa"), torch.randint(0, 50, (BATCH, LENGTH))
    known = flopledger.count(model, inputs)
    meta = {"attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long, device="meta")}
    found = flopledger.count(model, inputs, kwargs=meta)
    assert found.by_convention("mask_exact") == (None, None)
    assert found.by_convention("causal") == known.by_convention("causal")
    assert "values are not known" in found.attention.reasons["mask_exact"]


def test_a_mask_of_queries_by_keys_is_none_of_padding_though_its_rows_divide_the_heads_of_a_batch() -> None:
    model, inputs = model_of("llama"), torch.zeros(2, LENGTH, dtype=torch.long)
    for rows, kept in ((2, [2 * 300, 2]), (1, [300, 1]), (LENGTH, None)):  # 300: 1 + 2 + … + 24
        found = batch_mask(model, (inputs,), {"attention_mask": torch.ones(rows, LENGTH)})
        assert found.masks
        assert found.pairs("causal", LENGTH, LENGTH, 2 * LENGTH, heads_too=True) == kept


@pytest.mark.parametrize("rule", ["causal", "all", "window:3", "window:1"])
@pytest.mark.parametrize("queries", [4, 9])
def test_padded_and_packed_pairs_are_those_of_a_loop(rule: str, queries: int) -> None:
    keys, runs = 9, [(0, 2), (5, 8)]
    shift, window = keys - queries, int(rule.partition(":")[2] or keys)

    def keeps(i: int, j: int, shift: int) -> bool:
        return rule == "all" or i + shift - window < j <= i + shift

    kept = {j for start, stop in runs for j in range(start, stop)}
    loop = sum(keeps(i, j, shift) for i in range(queries) for j in kept)
    assert padded_pairs(rule, queries, runs, shift) == loop
    lengths = (3, 1, 5)
    assert packed_pairs(rule, lengths) == sum(
        keeps(i, j, 0) for length in lengths for i in range(length) for j in range(length)
    )
    assert padded_pairs(rule, queries, [(0, keys)], shift) == pairs_of(rule, queries, keys, shift)


TARGET = 9
TARGET_MASK = torch.ones(BATCH, TARGET, dtype=torch.long)
TARGET_MASK[0, 6:] = 0


BOTH = ("attention_mask", "decoder_attention_mask")


@pytest.mark.parametrize("given", [BOTH, BOTH[1:], ()])
def test_an_encoder_and_a_decoder_have_padding_of_their_own(
    given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two layers of each: the encoder's own pairs, the decoder's, and those of its queries with the encoder's keys."""
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = transformers.BartConfig(
        vocab_size=50, d_model=WIDTH, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, **sizes,
        attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    model = transformers.BartForConditionalGeneration(config).eval()
    masks = dict(zip(BOTH, (PADDED, TARGET_MASK), strict=True))
    kwargs = {"decoder_input_ids": torch.randint(3, 50, (BATCH, TARGET))} | {name: masks[name] for name in given}
    inputs = torch.randint(3, 50, (BATCH, LENGTH))
    found = flopledger.count(model, inputs, kwargs=kwargs)
    dense = 2 * BATCH * (LENGTH**2 + TARGET**2 + TARGET * LENGTH)
    less = OF_PAIR * (dense - really_kept(model, kwargs, monkeypatch))
    exact = found.forward_flop - less, found.backward_flop - 2 * less
    assert found.by_convention("mask_exact") == exact
    assert flopledger.count(model, (inputs,), kwargs=kwargs).by_convention("mask_exact") == exact


HEADS = 4
PARTS = {"encoder": (LENGTH, LENGTH), "SelfAttention": (TARGET, TARGET), "EncDecAttention": (TARGET, LENGTH)}
"""Part of a path in T5: (queries, keys). "encoder" is looked for first."""


def test_the_pairs_of_t5_are_those_of_its_real_masks_in_each_of_its_three_attentions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In training attention runs as plain products, of which only sizes say what they are. So heads are as wide, too,
    as there are words in the target, in the source, and as no length is."""
    for head, dropout, given in itertools.product((8, TARGET, LENGTH), (0.0, 0.1), (BOTH, BOTH[:1], ())):
        config = transformers.T5Config(
            vocab_size=50, d_model=WIDTH, d_kv=head, d_ff=16, num_layers=2, num_heads=HEADS, dropout_rate=dropout,
            decoder_start_token_id=0,
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config).train()
        masks = dict(zip(BOTH, (PADDED, TARGET_MASK), strict=True))
        kwargs = {"labels": torch.randint(3, 50, (BATCH, TARGET)), "use_cache": False}
        kwargs |= {name: masks[name] for name in given}
        kept = kept_by_sizes(model, kwargs, monkeypatch)
        assert set(kept) == set(PARTS.values())
        inputs, of_pair = torch.randint(3, 50, (BATCH, LENGTH)), 2 * 2 * HEADS * head
        found = flopledger.count(model, inputs, kwargs=kwargs, loss_of=lambda output: output.loss)
        dense = {(queries, keys): 2 * BATCH * queries * keys for queries, keys in PARTS.values()}  # of two layers
        less = of_pair * (sum(dense.values()) - sum(kept.values()))
        assert found.by_convention("mask_exact") == (found.forward_flop - less, found.backward_flop - 2 * less)


def test_padding_of_an_encoder_elsewhere_is_not_that_of_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder of two layers that attends to itself and to what its caller gives of an encoder."""
    options = SMALL | NO_DROPOUT | {"is_decoder": True, "add_cross_attention": True, "use_cache": False}
    models = {
        how: transformers.BertModel(transformers.BertConfig(**options, attn_implementation=how)).eval()
        for how in ("sdpa", "eager")
    }
    inputs = torch.randint(0, 50, (BATCH, LENGTH))
    given = {"attention_mask": PADDED, "encoder_hidden_states": torch.randn(BATCH, LENGTH, WIDTH)}
    for model in models.values():
        of_two = given | {"encoder_attention_mask": PADDED.flip(0)}
        assert flopledger.count(model, (inputs,), kwargs=of_two).by_convention("mask_exact") == (None, None)
    assert flopledger.count(models["eager"], (inputs,), kwargs=given).by_convention("mask_exact") == (None, None)
    found = flopledger.count(models["sdpa"], (inputs,), kwargs=given)
    less = OF_PAIR * (2 * BATCH * 2 * LENGTH**2 - really_kept(models["sdpa"], given, monkeypatch))
    assert found.by_convention("mask_exact")[0] == found.forward_flop - less


@pytest.mark.parametrize("family", ["CLIP", "CLIPSeg", "MetaClip2", "OwlViT", "Owlv2", "XCLIP"])
def test_text_models_like_clip_are_causal_though_their_modules_say_otherwise(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, kind = (getattr(transformers, f"{family}Text{part}") for part in ("Config", "Model"))
    model = kind(config(**SMALL, attn_implementation="sdpa")).eval()
    plain = kind(config(**SMALL, attn_implementation="eager")).eval()
    inputs = torch.randint(0, 50, (BATCH, LENGTH))
    for kwargs in ({}, {"attention_mask": PADDED}):
        found = flopledger.count(model, (inputs,), kwargs=kwargs)
        less = OF_PAIR * (2 * BATCH * LENGTH**2 - really_kept(model, kwargs, monkeypatch))  # of two layers
        exact = found.forward_flop - less, found.backward_flop - 2 * less
        assert found.by_convention("mask_exact") == exact
        assert flopledger.count(plain, (inputs,), kwargs=kwargs).by_convention("mask_exact") == exact
