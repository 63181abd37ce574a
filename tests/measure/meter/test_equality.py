"""Law, definition: the meter counts of a real loop what `flopledger.count` counts of the same step, to the unit."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import flopledger
from tests.measure.meter.square_layers import measured, meter_of
from tests.support.nets.small_steps import Calls

SMALL = ("resnet18", "alexnet", "mobilenet_v2")
BIG = (
    "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg13", "vgg16", "vgg19", "wide_resnet50_2",
    "efficientnet_b0",
)  # fmt: skip
SIDE, BATCH, WORDS, LENGTH = 64, 2, 50, 12


def _metered(model, steps, loss_of=None):
    """What a meter says of these batches, trained on with SGD; each a dictionary of the model's keyword arguments, or a
    tensor."""
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1e-3)

    def step(number):
        optimizer.zero_grad()
        batch = steps[number]
        output = model(**batch) if isinstance(batch, dict) else model(batch)
        picked = loss_of(output) if loss_of else output
        (picked if picked.ndim == 0 else picked.square().mean()).backward()
        optimizer.step()

    return measured(model, step, len(steps), loss_of=loss_of)


def _counted(model, batch, loss_of=None):
    if isinstance(batch, dict):
        return flopledger.count(model, (), kwargs=batch, loss_of=loss_of)
    return flopledger.count(model, batch, loss_of=loss_of)


def _assert_equal(model, *batches, loss_of=None):
    found = _metered(model, batches, loss_of)
    exact = [_counted(model, batch, loss_of) for batch in batches]
    assert found.steps == len(batches)
    assert found.unknown_calls == 0
    assert found.model_flop_per_step * len(batches) == sum(each.model_flop for each in exact) > 0
    assert found.recompute_flop_per_step * len(batches) == sum(each.recompute_flop for each in exact)
    for convention in ("causal", "mask_exact"):
        known = [sum(flop) if None not in (flop := each.by_convention(convention)) else None for each in exact]
        mean = getattr(found, f"{convention}_flop_per_step")
        assert (mean is None) == (None in known), (convention, found.attention_reasons)
        assert mean is None or mean * len(batches) == sum(known)


@pytest.mark.parametrize("name", [*SMALL, *[pytest.param(each, marks=pytest.mark.slow) for each in BIG]])
def test_of_each_vision_model(name):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, num_classes=10)
    _assert_equal(model, torch.randn(BATCH, 3, SIDE, SIDE))


def _words(length=LENGTH, size=WORDS):
    words = torch.randint(0, size, (BATCH, length), generator=torch.Generator().manual_seed(length))
    return {"input_ids": words, "labels": words}


def _tiny_gpt2(transformers):
    sizes = {"vocab_size": WORDS, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))


def test_of_gpt2_over_lengths_that_change():
    transformers = pytest.importorskip("transformers")
    _assert_equal(_tiny_gpt2(transformers), _words(12), _words(7), _words(12), loss_of=lambda output: output.loss)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Gemma3Text"])
def test_of_masks_by_convention(family):
    """A causal layer leaves half of the pairs, a window of 5 of 12 keys 1 + … + 5 + 7 · 5 = 50; of 2 · 16 wide
    heads' pairs each is 2 · 2 · 32 FLOP, and twice that backward."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    }  # fmt: skip
    kinds = ["sliding_attention", "full_attention"]
    more = {"Llama": {}, "Mistral": {"sliding_window": 5}, "Gemma3Text": {"sliding_window": 5, "layer_types": kinds}}
    config = getattr(transformers, f"{family}Config")(**sizes, **more[family])
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)
    _assert_equal(model, _words(), loss_of=lambda output: output.loss)
    found = _metered(model, [_words()], lambda output: output.loss)
    kept = {"Llama": (78, 78), "Mistral": (50, 50), "Gemma3Text": (50, 78)}[family]
    of_pair = BATCH * 2 * 2 * 32 * 3
    assert found.model_flop_per_step - found.causal_flop_per_step == of_pair * 2 * (144 - 78)
    assert found.model_flop_per_step - found.mask_exact_flop_per_step == of_pair * (2 * 144 - sum(kept))
    assert "attention   counted dense; causal " in str(found)


def test_of_a_step_with_two_passes_by_convention():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=WORDS, **sizes))

    def step(_number):
        model(**_words()).logits.sum().backward()
        model(**_words()).logits.sum().backward()

    found = measured(model, step)
    pairs = BATCH * (LENGTH**2 - LENGTH * (LENGTH + 1) // 2)
    assert found.model_flop_per_step - found.causal_flop_per_step == 2 * 3 * 2 * 2 * 32 * pairs


def test_of_gpt2_with_checkpointed_layers():
    transformers = pytest.importorskip("transformers")
    model = _tiny_gpt2(transformers)
    model.activation_checkpointing_enable()
    found = _counted(model.train(), _words(), lambda output: output.loss)
    assert found.recompute_flop > 0
    _assert_equal(model, _words(), loss_of=lambda output: output.loss)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_of_a_recurrent_network(kind):
    body = kind(16, 24, num_layers=2, batch_first=True, bidirectional=True)
    model = Calls(lambda m, x: m.head(m.body(x)[0]), body=body, head=torch.nn.Linear(48, WORDS))
    _assert_equal(model, torch.randn(BATCH, LENGTH, 16), torch.randn(BATCH, 5, 16))


def test_of_tied_weights_and_accumulated_gradients():
    transformers = pytest.importorskip("transformers")
    model = _tiny_gpt2(transformers)
    assert model.lm_head.weight is model.transformer.wte.weight
    lengths = (12, 9)

    def step(number):
        for _ in range(3):
            model(**_words(lengths[number])).loss.backward()

    exact = [_counted(model, _words(length), lambda output: output.loss).model_flop for length in lengths]
    assert measured(model, step, 2).model_flop_per_step * 2 == 3 * sum(exact)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences_cost_their_own_lengths(kind):
    """A PackedSequence as input, of other lengths in each step."""
    model = getattr(torch.nn, kind)(8, 16, num_layers=2, bidirectional=True)
    meter = meter_of(model)
    exact = 0
    for lengths in ((5, 3, 1), (4, 4, 1), (6, 2, 1), (5, 4), (5, 3, 1)):
        batch = pack_sequence([torch.randn(length, 8) for length in lengths])
        with meter.step():
            model(batch)[0].data.sum().backward()
        exact += flopledger.count(model, batch, loss_of=lambda outputs: outputs[0].data).model_flop
    found = meter.summary()
    assert found.model_flop_per_step * found.steps == exact > 0
    assert found.steps == 5
