"""transformers' models from small configurations: built, fed by their configuration, counted whole; and mistakes."""

import json

import pytest
import torch

from measure.counters.adapters import own
from results.errors import Unavailable
from tests.support.nets.small_configs import CONFIGS, TEXT
from workloads.sources import any_model
from workloads.sources.any_model import get
from workloads.training.building import takes

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
    rows = own.count(model, inputs, workload="hf", batch_size=len(inputs[0]))
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
    names = [parameter.name for parameter in takes(model)]
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


def test_vit_by_hand(config):
    """16 patches of 3·8·8 to 32, 17 tokens with the class; 2 layers of 4·32² + 2·32·64 MAC a token and 2·17·32 of
    attention; a head of 32·2. Backward is twice that, but once for the patches."""
    workload = get(config("vit"))
    found = {phase: row.flop for phase, row in totals(workload.build(), batch_of(workload, 3).inputs).items()}
    patches, rest = 16 * 192 * 32, 2 * 17 * (4 * 1024 + 2 * 2048 + 2 * 17 * 32) + 64
    assert found == {"forward": 6 * (patches + rest), "backward": 6 * (patches + 2 * rest)}


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


def test_the_class_is_the_architecture_or_the_bare_model(config):
    assert type(get(config("bert")).build(seq=8)).__name__ == "BertForMaskedLM"
    assert type(get(config("bert", architectures=None)).build(seq=8)).__name__ == "BertModel"
    named = get(config(None, model_type=None, **TEXT, architectures=["BertForTokenClassification"]))
    assert type(named.build(seq=8)).__name__ == "BertForTokenClassification"
    assert get("hf:bert").hyper == {"seq": 128}


def test_it_is_float32_without_kept_keys_and_wholly_on_the_default_device(config):
    """Whatever the configuration says of types; wav2vec2 makes a vector on the CPU by itself."""
    model = get(config("llama", dtype="bfloat16", use_cache=True)).build(seq=8)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.use_cache is False
    with torch.device("meta"):
        model = get(config("wav2vec2")).build()
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}


def test_inputs_of_ones_own(config):
    workload = get(config("bert"), input="attention_mask=12:int64:2,input_ids=12:int64:99")
    assert workload.hyper == {}
    inputs = batch_of(workload).inputs
    assert (inputs[0].max() > 1, inputs[1].max()) == (True, 1)
    plain = get(config("bert"), input="12:int64:99")
    assert [tuple(given.shape) for given in batch_of(plain).inputs] == [(2, 12)]


@pytest.mark.parametrize(
    ("kind", "changed", "options", "said"),
    [
        ("brt", {}, {}, "transformers has no model type 'brt'; nearest: bert"),
        ("bert", {"model_type": 7}, {}, "transformers has no model type 7"),
        ("bert", {"architectures": ["BertForMaskedML"]}, {}, "no model 'BertForMaskedML'; nearest: BertForMaskedLM"),
        ("bert", {"architectures": ["BertConfig"]}, {}, "has no model 'BertConfig'"),
        ("bert", {}, {"image_size": 3}, "has no image_size here; other sizes are in its config"),
        ("bert", {}, {"seq": 0}, "seq of hf:"),
        ("vit", {}, {"seq": 8}, "has no seq here"),
        ("decision_transformer", {}, {}, "takes states, which has no default shape here: say it"),
        ("bert", {"hidden_size": "wide"}, {}, "hf:"),
        ("canine", {}, {}, "the config does not give the shape of input_ids"),
    ],
)
def test_mistakes_are_one_line(config, kind, changed, options, said):
    with pytest.raises(ValueError, match=r".") as fault:
        get(config(kind, **changed), **options)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_configuration_that_cannot_be_built_is_one_line(config):
    workload = get(config("bert", num_attention_heads=5))
    with pytest.raises(
        ValueError, match=r"^hf:.* raised ValueError: The hidden size \(32\) is not a multiple"
    ) as fault:
        workload.build(**workload.hyper)
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
