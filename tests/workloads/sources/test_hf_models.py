"""Definition, injected fault: transformers' models of small configurations are fed and counted whole; refusals."""

import json

import pytest
import torch

from measure.counters.adapters.dispatched import flopledger
from results.errors import Unavailable
from workloads import any_model
from workloads.any_model import forward_parameters, get

TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
    "pad_token_id": 0,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
BOTH_WAYS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 99,
    "pad_token_id": 0,
}
SOUND = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": [16] * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}

CONFIGS = {
    "bert": {**TEXT, "architectures": ["BertForMaskedLM"]},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},
    "electra": {**TEXT, "embedding_size": 16},
    "deberta-v2": TEXT,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "architectures": ["GPT2LMHeadModel"]},
    "llama": {**GROUPED, "architectures": ["LlamaForCausalLM"]},
    "mistral": GROUPED,
    "qwen2": GROUPED,
    "phi": GROUPED,
    "gpt_neox": TEXT,
    "opt": {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "mixtral": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "architectures": ["MixtralForCausalLM"]},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4},
    "t5": {
        "d_model": 32,
        "d_ff": 64,
        "d_kv": 8,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 99,
        "architectures": ["T5ForConditionalGeneration"],
    },
    "bart": BOTH_WAYS,
    "vit": {**IMAGE, "architectures": ["ViTForImageClassification"]},
    "swin": {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "videomae": {**IMAGE, "num_frames": 4},
    "wav2vec2": SOUND,
    "whisper": {
        **BOTH_WAYS,
        "max_source_positions": 50,
        "max_target_positions": 16,
        "architectures": ["WhisperForConditionalGeneration"],
    },
    "clip": {"text_config": {**TEXT, "max_position_embeddings": 16}, "vision_config": IMAGE, "projection_dim": 16},
}


CPU = torch.device("cpu")

QUICK = ("bert", "gpt2", "llama", "mixtral", "t5", "swin", "wav2vec2", "clip")


@pytest.fixture
def config(tmp_path):
    def written(kind, **changed):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **CONFIGS.get(kind, {}), **changed}))
        return f"hf:{tmp_path}"

    return written


def batch_of(workload, size=2):
    return workload.batch(workload.hyper, size, CPU, torch.Generator().manual_seed(0))


def totals(model, inputs):
    rows = flopledger(model, inputs, workload="hf", batch_size=len(inputs[0]))
    return {row.phase: row for row in rows if (row.scope, row.operator) == ("total", "")}


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in CONFIGS]
)
def test_architectures_are_counted_whole(config, kind):
    """What an embedding looks up needs no product, so that backward is twice forward; where a first layer multiplies
    data, it is less."""
    workload = get(config(kind))
    if workload.hyper.get("seq", 0) > 16:
        workload = get(config(kind), seq=16)
    found = totals(workload.build(**workload.hyper), batch_of(workload).inputs)
    assert {phase: row.not_understood for phase, row in found.items()} == {"forward": {}, "backward": {}}
    assert found["forward"].flop > 0
    assert 1.6 < found["backward"].flop / found["forward"].flop <= 2


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5", "bart", "clip", "whisper", "mixtral", "vit"])
def test_inputs_by_position_give_what_inputs_by_name_give(config, kind):
    workload = get(config(kind))
    model, inputs = workload.build(**workload.hyper).eval(), batch_of(workload).inputs
    names = [parameter.name for parameter in forward_parameters(model)]
    named = {name: value for name, value in zip(names, inputs, strict=False) if isinstance(value, torch.Tensor)}
    with torch.no_grad():
        by_position, by_name = model(*inputs), model(**named)
    compared = [
        torch.equal(by_position[key], value) for key, value in by_name.items() if isinstance(value, torch.Tensor)
    ]
    assert compared
    assert all(compared)


def test_gpt2_by_hand(config):
    """2 layers of width 32 on 2 × 16 tokens: 3 d² for queries, keys and values, d² behind them, 2·4 d² in the network:
    12 d² MAC a token; 2·16·d of attention, counted dense; 99 words of d. Backward is twice that: tokens are looked up,
    and each product has two gradients."""
    workload = get(config("gpt2"), seq=16)
    found = {
        phase: row.flop for phase, row in totals(workload.build(**workload.hyper), batch_of(workload).inputs).items()
    }
    forward = 2 * (2 * 16) * (2 * (12 * 32**2 + 2 * 16 * 32) + 99 * 32)
    assert found == {"forward": forward, "backward": 2 * forward}


def test_a_mixture_of_experts_by_hand(config):
    """Two of four experts for each of 2 × 16 tokens of 32: 2·3·32·64 MAC, and 4·32 to choose them. Attention: 4 heads
    of 8 and half as many keys and values, 2·32² + 2·32·16, and 2·16·32. Two such layers and 99 words."""
    workload = get(config("mixtral"), seq=16)
    found = {phase: row.flop for phase, row in totals(workload.build(seq=16), batch_of(workload).inputs).items()}
    layer = 2 * 3 * 32 * 64 + 4 * 32 + 2 * 32**2 + 2 * 32 * 16 + 2 * 16 * 32
    forward = 2 * (2 * 16) * (2 * layer + 99 * 32)
    assert found == {"forward": forward, "backward": 2 * forward}


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("bert", [(2, 128)]),
        ("t5", [(2, 128), None, (2, 128)]),
        ("vit", [(2, 3, 32, 32)]),
        ("videomae", [(2, 4, 3, 32, 32)]),
        ("wav2vec2", [(2, 16_000)]),
        ("whisper", [(2, 80, 100), None, (2, 16)]),
        ("clip", [(2, 16), (2, 3, 32, 32)]),
    ],
)
def test_inputs_come_from_the_configuration(config, kind, shapes):
    inputs = batch_of(get(config(kind))).inputs
    assert [None if given is None else tuple(given.shape) for given in inputs] == shapes


def test_it_is_float32_without_kept_keys_and_wholly_on_the_default_device(config):
    """Whatever the configuration says of types; wav2vec2 makes a vector on the CPU by itself."""
    model = get(config("llama", dtype="bfloat16", use_cache=True)).build(seq=8)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.use_cache is False
    with torch.device("meta"):
        model = get(config("wav2vec2")).build()
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}


@pytest.mark.parametrize(
    ("kind", "changed", "options", "said"),
    [
        ("brt", {}, {}, "transformers has no model type 'brt'; nearest: bert"),
        ("bert", {"model_type": 7}, {}, "transformers has no model type 7"),
        ("bert", {"architectures": ["BertForMaskedML"]}, {}, "no model 'BertForMaskedML'; nearest: BertForMaskedLM"),
        ("bert", {"architectures": ["BertConfig"]}, {}, "has no model 'BertConfig'"),
        ("bert", {}, {"image_size": 3}, "has no image_size; it has seq"),
        ("bert", {}, {"seq": 0}, "seq of hf:"),
        ("vit", {}, {"seq": 8}, "has no seq; it has"),
        ("decision_transformer", {}, {}, "takes states, which has no default shape here: give it"),
        ("bert", {"hidden_size": "wide"}, {}, "hf:"),
        ("canine", {}, {}, "the config does not give the shape of input_ids"),
    ],
)
def test_mistakes_are_one_line(config, kind, changed, options, said):
    with pytest.raises(ValueError, match=r".") as fault:
        get(config(kind, **changed), **options)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_model_larger_than_memory_is_refused_before_it_is_built(config, monkeypatch):
    """4 layers of 16384² times 12, and more: 50 GB of weights, as much of gradients; building it would be seen."""
    workload = get(config("gpt2", n_embd=16_384, n_layer=4, n_head=4), seq=8)
    monkeypatch.setattr(any_model, "free_bytes", lambda: 8 * 10**9)
    with pytest.raises(Unavailable, match=r"weights and gradients are 1\d\d\.\d GB, and 8\.0 GB are free"):
        workload.build(**workload.hyper)
    with torch.device("meta"):
        assert sum(p.numel() for p in workload.build(**workload.hyper).parameters()) > 12 * 10**9
    monkeypatch.setattr(any_model, "free_bytes", lambda: None)
    assert get(config("bert")).build(seq=8).training


def test_the_class_is_the_architecture_or_the_bare_model(config):
    assert type(get(config("bert")).build(seq=8)).__name__ == "BertForMaskedLM"
    assert type(get(config("bert", architectures=None)).build(seq=8)).__name__ == "BertModel"
    named = get(config(None, model_type=None, **TEXT, architectures=["BertForTokenClassification"]))
    assert type(named.build(seq=8)).__name__ == "BertForTokenClassification"
    assert get("hf:bert").hyper == {"seq": 128}
