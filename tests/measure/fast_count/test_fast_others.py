"""Architectures of timm and transformers, built from configs with nothing downloaded: equal to the executed trace."""

from __future__ import annotations

import pytest
import timm
import torch
import transformers

from measure.fast_count.fast_count import fast_count
from tests.support.nets.fast_nets import agree, executed

TIMM = {
    "vit_tiny_patch16_224": 224,
    "resnet10t": 96,
    "convnext_atto": 96,
    "mixer_s32_224": 224,
    "efficientvit_b0": 96,
}


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False).train()
    found = agree(model, (torch.empty(2, 3, TIMM[name], TIMM[name]),))
    assert found.not_understood == {}


SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 50}
HF = {
    "bert": lambda: transformers.BertModel(transformers.BertConfig(intermediate_size=64, **SMALL)),
    "t5": lambda: transformers.T5EncoderModel(
        transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, vocab_size=50)
    ),
}


@pytest.mark.parametrize("name", HF)
def test_transformers(name):
    torch.manual_seed(0)
    model = HF[name]().train()
    found = agree(model, (torch.zeros(2, 7, dtype=torch.long),))
    assert found.backward_flop > found.forward_flop


ASKING = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=50, use_cache=False)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(intermediate_size=64, num_key_value_heads=2, use_cache=False, **SMALL)
    ),
}
"""They ask for values of positions, where they are not traced (transformers 5.23)."""


@pytest.mark.parametrize("name", ASKING)
def test_a_model_that_asks_for_values_is_counted_by_the_executed_trace_and_says_so(name):
    torch.manual_seed(0)
    model, tokens = ASKING[name]().train(), torch.zeros(2, 7, dtype=torch.long)
    found, (totals, _, _) = fast_count(model, (tokens,)), executed(model, (tokens,))
    assert (found.forward_flop, found.backward_flop) == (totals["forward"], totals["backward"])
    assert found.executed
    assert "cannot be called on meta tensors" in found.notes[0]
