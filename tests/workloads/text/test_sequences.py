"""Definition, known answer: parameters and products of models of text and speech, by formulas and by Catamount."""

import pytest
import torch

from analysis.operators.registry import total, unsupported
from measure.operations.fake_mode import to_fake
from measure.operations.tracer import StepParts, trace
from tests.support.bf16 import skip_without_bf16
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file
from workloads import sequences
from workloads.step import OPTIMIZERS, TrainingStep

TINY = {
    "wordlm": {"hidden": 12, "vocab": 20, "seq": 5, "layers": 3},
    "charlm": {"hidden": 10, "vocab": 9, "seq": 4, "depth": 3},
    "nmt": {"hidden": 6, "vocab": 11, "seq": 5},
    "speech": {
        "hidden": 6, "attention_hidden": 5, "decoder_hidden": 4, "keys": 3, "frames": 15, "vocab": 7, "audio": 8,
        "conv_width": 4, "filters": 2,
    },
    "word2vec": {"hidden": 10, "vocab": 30, "negatives": 5, "positions": 6},
    "bert": {"layers": 2, "hidden": 64, "vocab": 30, "seq": 6, "max_positions": 12},
    "bert_large": {"layers": 1, "hidden": 128, "vocab": 20, "seq": 4, "max_positions": 8},
    "gpt": {"d_model": 24, "layers": 2, "heads": 3, "seq": 6, "vocab": 20},
}  # fmt: skip
BASE_PARAMETERS = {
    "wordlm": 104_378_326 - 2,
    "charlm": 88_785_316 - 2,
    "nmt": 146_890_753 - 1,
    "speech": 71_084_729 - 2 - 2 * 40,
    "word2vec": 32_043_205 - 1,
    "bert": 110_106_428,
    "bert_large": 336_226_108,  # 98H² + 48HI + 512H + Hv + 226H + 24I + v + 2 at H = 1024, I = 4096, v = 30,522
    "gpt": 124_439_808,  # GPT-2 small, by its published checkpoint
}


def wordlm_parameters(hidden, vocab, layers, **_):
    """Embedding and softmax hv each and a bias of v; a layer has 4h gates of what comes in (h), state (h), a bias."""
    return 2 * hidden * vocab + vocab + layers * 4 * hidden * (2 * hidden + 1)


def charlm_parameters(hidden, vocab, depth, **_):
    """The first sublayer: two products of 2h × h, the others of h × h; a bias for each."""
    return 2 * hidden * vocab + vocab + 2 * (2 * hidden**2 + hidden) + (depth - 1) * 2 * (hidden**2 + hidden)


def wordlm_products(b, hidden, vocab, seq, layers):
    """Multiply-adds of a token: 2h × 4h in each layer, h × v once."""
    return b * seq * (8 * hidden**2 * layers + hidden * vocab)


def charlm_products(b, hidden, vocab, seq, depth):
    """Multiply-adds of a letter: 2h × h twice, h × h twice in each other sublayer, h × v once."""
    return b * seq * (4 * hidden**2 + (depth - 1) * 2 * hidden**2 + hidden * vocab)


def nmt_parameters(hidden, vocab, **_):
    """Two embeddings and the projection; two directions of 4h × 2h and a decoder of 4h × 3h with biases; keys 2h × h
    and the attention's layer 3h × h without."""
    return 3 * hidden * vocab + 2 * (8 * hidden**2 + 4 * hidden) + 12 * hidden**2 + 4 * hidden + 5 * hidden**2


def nmt_products(b, hidden, vocab, seq):
    """A word of the source: 2 directions of 2h × 4h, its key 2h × h. Of the target: 3h × 4h, a score (h) and a share of
    the context (2h) for each source word, 3h × h, h × v."""
    source = 2 * 8 * hidden**2 + 2 * hidden**2
    return b * seq * (source + 12 * hidden**2 + 3 * hidden * seq + 3 * hidden**2 + hidden * vocab)


def speech_parameters(hidden, attention_hidden, decoder_hidden, keys, vocab, audio, conv_width, filters, **_):
    """Three layers of two directions that get `audio`, 2h and 2h; keys of 2h; two cells; the attention's W, Q, U, b, w;
    the output."""
    h, a, d = hidden, attention_hidden, decoder_hidden
    encoder = sum(2 * 4 * h * (entering + h + 1) for entering in (audio, 2 * h, 2 * h))
    cells = 4 * a * (vocab + 2 * h + a + 1) + 4 * d * (a + 2 * h + d + 1)
    attention = (2 * h + 1) * keys + 2 * a * keys + conv_width * filters + filters * keys + 2 * keys
    return encoder + cells + attention + (d + 1) * vocab


def speech_products(b, hidden, attention_hidden, decoder_hidden, keys, frames, vocab, audio, conv_width, filters):
    """Products alone: scores and contexts are sums of elementwise products. Each layer halves the time; the encoder's
    steps that are left are the decoder's, and what its attention looks at."""
    h, a, d, steps = hidden, attention_hidden, decoder_hidden, frames // 4
    encoder = frames * 8 * h * (audio + h) + (frames // 2) * 8 * h * 3 * h + steps * 8 * h * 3 * h
    step = 4 * a * (vocab + 2 * h + a) + 2 * a * keys + 4 * d * (a + 2 * h + d) + d * vocab
    location = steps * filters * (conv_width + keys)
    return b * (encoder + steps * 2 * h * keys + steps * (step + location))


def word2vec_parameters(hidden, vocab, **_):
    return 2 * hidden * vocab + vocab


def word2vec_products(b, hidden, vocab, negatives, positions):
    """Each word with each word of the noise; with its context it is a sum of elementwise products."""
    return b * positions * negatives * hidden


def bert_parameters(layers, hidden, vocab, max_positions, **_):
    """The facts' formula of 12 layers is 50H² + 24HI + 512H + Hv + 118H + 12I + v + 2. A layer: 4 products of H × H and
    two of H × I with biases, 2 normalisations. Beside them three embeddings and a normalisation; the pooler; the
    transform and its normalisation; the bias of the words; the answer."""
    inner = 4 * hidden
    layer = 4 * (hidden**2 + hidden) + 2 * hidden * inner + inner + hidden + 4 * hidden
    embeddings = (vocab + max_positions + 2) * hidden + 2 * hidden
    heads = 2 * (hidden**2 + hidden) + 2 * hidden + vocab + 2 * hidden + 2
    return layers * layer + embeddings + heads


def bert_products(b, layers, hidden, vocab, seq, max_positions):
    """A word in a layer: 4H² + 2·4H², 2H for each word that it attends to; then H² and Hv. A sample: H² and 2H."""
    word = layers * (12 * hidden**2 + 2 * hidden * seq) + hidden**2 + hidden * vocab
    return b * seq * word + b * (hidden**2 + 2 * hidden)


def gpt_parameters(d_model, layers, heads, seq, vocab):
    """A block: d × 3d, d × d, d × 4d, 4d × d with biases of 9d, two normalisations. The head is the embedding."""
    return layers * (12 * d_model**2 + 9 * d_model + 4 * d_model) + (vocab + seq + 2) * d_model


def gpt_products(b, d_model, layers, heads, seq, vocab):
    """Attention counted dense: 2d for each word of the sample, those after it, too."""
    return b * seq * (layers * (12 * d_model**2 + 2 * d_model * seq) + d_model * vocab)


PARAMETERS = {
    "wordlm": wordlm_parameters,
    "charlm": charlm_parameters,
    "nmt": nmt_parameters,
    "speech": speech_parameters,
    "word2vec": word2vec_parameters,
    "bert": bert_parameters,
    "bert_large": bert_parameters,
    "gpt": gpt_parameters,
}
PRODUCTS = {
    "wordlm": wordlm_products,
    "charlm": charlm_products,
    "nmt": nmt_products,
    "speech": speech_products,
    "word2vec": word2vec_products,
    "bert": bert_products,
    "bert_large": bert_products,
    "gpt": gpt_products,
}


CPU = torch.device("cpu")
NAMES = list(TINY)
BOTH_GRADIENTS = [name for name in NAMES if name != "speech"]
"""Whose products all have operands that both need a gradient: backward is twice forward, but for `ZERO_STATES`."""

ZERO_STATES = {"wordlm": 3, "nmt": 2}
"""Layers of LSTMs that begin with zeros, which need no gradient: a product of 4 hidden × hidden a sample each."""


def meta(name, **sizes):
    workload = sequences.get(name, **sizes)
    with torch.device("meta"):
        return workload, workload.build(**workload.hyper)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def parts(name, batch_size, autocast=None, **sizes):
    """How to build a training step, on fake or real tensors."""

    def build(mode):
        torch.manual_seed(0)
        workload = sequences.get(name, **{**TINY[name], **sizes})
        model = workload.build(**workload.hyper)
        batch = workload.batch(workload.hyper, batch_size, CPU, torch.Generator().manual_seed(0))
        if mode is not None:
            to_fake(model, mode)
            batch = to_fake(batch, mode)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        step = TrainingStep(model, workload.loss, optimizer, [batch], "cpu", autocast)
        return StepParts(step, model, optimizer, (batch.inputs, batch.target))

    return build


def phase_flop(recorded, phase):
    return int(total(o for o in recorded.operations if o.phase == phase).model_flop)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_at_the_base_sizes_are_those_that_catamount_asserts(name):
    workload, model = meta(name)
    assert count(model) == BASE_PARAMETERS[name] == PARAMETERS[name](**workload.hyper)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_at_other_sizes(name):
    """Each size doubled by itself, from tiny ones, so that no two can stand for each other."""
    for doubled in (None, *TINY[name]):  # heads as 6, of 24
        sizes = TINY[name] | ({doubled: 2 * TINY[name][doubled]} if doubled else {})
        assert count(meta(name, **sizes)[1]) == PARAMETERS[name](**sizes), sizes


@pytest.mark.parametrize("name", NAMES)
def test_products_of_a_step_on_fake_tensors(name):
    sizes = TINY[name]
    recorded = trace(parts(name, 3))
    assert unsupported(recorded.operations) == {}
    forward = 2 * PRODUCTS[name](3, **sizes)
    assert phase_flop(recorded, "forward") == forward
    if name in BOTH_GRADIENTS:
        zeros = ZERO_STATES.get(name, 0) * 2 * 3 * 4 * sizes.get("hidden", 0) ** 2
        assert phase_flop(recorded, "backward") == 2 * forward - zeros


@pytest.mark.parametrize("name", NAMES)
def test_products_grow_with_each_size(name):
    for doubled in TINY[name]:
        sizes = {**TINY[name], doubled: 2 * TINY[name][doubled]}
        assert phase_flop(trace(parts(name, 2, **sizes)), "forward") == 2 * PRODUCTS[name](2, **sizes), doubled


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["fp32", "amp-bf16"])
@pytest.mark.parametrize("name", NAMES)
def test_a_real_step_trains_every_parameter(name, autocast):
    if autocast is not None:
        skip_without_bf16()
    built = parts(name, 3, autocast)(None)
    built.step()
    assert torch.isfinite(built.step.last_loss)
    without = [key for key, each in built.model.named_parameters() if each.grad is None or not each.grad.any()]
    assert without == []


MISTAKES = [
    ("wordlm", {"hiden": 3}, "wordlm has no hiden; it has hidden, vocab, seq, layers"),
    ("wordlm", {"image_size": 32}, "wordlm has no image_size"),
    ("charlm", {"depth": 0}, "depth of charlm: expected 1 or more, got 0"),
    ("wordlmm", {}, "unknown model 'wordlmm'; nearest: wordlm"),
    ("gpt", {"d_model": 50}, "gpt needs d_model to be a multiple of heads, 12; got 50"),
    ("gpt", {"heads": 7}, "gpt needs d_model to be a multiple of heads, 7; got 768"),
    ("bert", {"hidden": 100}, "bert needs hidden to be a multiple of 64; got 100"),
    ("bert", {"seq": 513}, "bert needs seq to be at most max_positions, 512; got 513"),
    ("speech", {"frames": 3}, "speech needs frames to be at least 4; got 3"),
    ("resnet18", {}, "resnet18 is a classification workload; those made here are wordlm"),
]


@pytest.mark.parametrize(("name", "sizes", "said"), MISTAKES, ids=lambda value: str(value)[:30])
def test_a_mistake_is_one_line(name, sizes, said):
    with pytest.raises(ValueError, match=said) as fault:
        sequences.get(name, **sizes)
    assert "\n" not in str(fault.value)
