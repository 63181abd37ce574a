"""Definition, known answer: parts of models of text and speech against PyTorch's own or a loop by hand."""

import math

import pytest
import torch
from torch import nn

from workloads import sequences
from workloads.recurrent import Attention, HybridAttention, LSTMCell
from workloads.sequences import Word2Vec, attend, contrastive_loss

SIZES = {
    "wordlm": {"hidden": 8, "vocab": 12, "seq": 6, "layers": 2},
    "charlm": {"hidden": 8, "vocab": 12, "seq": 6, "depth": 2},
    "nmt": {"hidden": 8, "vocab": 12, "seq": 6},
    "gpt": {"d_model": 12, "layers": 2, "heads": 3, "seq": 6, "vocab": 12},
    "bert": {"layers": 1, "hidden": 64, "vocab": 12, "seq": 6, "max_positions": 8},
}


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


def made(name):
    workload = sequences.get(name, **SIZES[name])
    batch = workload.batch(workload.hyper, 2, torch.device("cpu"), torch.Generator().manual_seed(1))
    return workload.build(**workload.hyper).eval(), list(batch.inputs)


def moved(name, position, which=-1):
    """At which positions the logits change if one token of an input does."""
    model, inputs = made(name)
    with torch.no_grad():
        before = model(*inputs)
        inputs[which] = inputs[which].clone()
        inputs[which][:, position] = (inputs[which][:, position] + 1) % 12
        after = model(*inputs)
    before, after = (output[0] if isinstance(output, tuple) else output for output in (before, after))
    return [step for step in range(6) if not torch.allclose(before[:, step], after[:, step], atol=1e-7)]


@pytest.mark.parametrize("name", ["wordlm", "charlm", "nmt", "gpt"])
def test_a_token_changes_what_is_predicted_from_there_on_and_nothing_before(name):
    assert moved(name, 3) == [3, 4, 5]


def test_a_cell_is_pytorchs_with_one_more_at_the_forget_gate():
    """PyTorch's gates stand in the order i, f, g, o; here i, g, f, o."""
    own, plain = LSTMCell(3, 5), nn.LSTMCell(3, 5)
    i, g, f, o = own.gates.weight.detach().chunk(4)
    weight = torch.cat([i, f, g, o])
    i, g, f, o = own.gates.bias.detach().chunk(4)
    with torch.no_grad():
        plain.weight_ih.copy_(weight[:, :3])
        plain.weight_hh.copy_(weight[:, 3:])
        plain.bias_ih.copy_(torch.cat([i, f + 1.0, g, o]))
        plain.bias_hh.zero_()
    x, state = torch.randn(2, 3), (torch.randn(2, 5), torch.randn(2, 5))
    for mine, other in zip(own(x, state), plain(x, state), strict=True):
        torch.testing.assert_close(mine, other)


def test_luongs_attention_by_hand():
    """Keys are equal, so that weights are a third each, and the context the mean of the memory."""
    attention, memory = Attention(4), torch.randn(1, 3, 8)
    query = torch.randn(1, 4)
    found = attention(query, torch.ones(1, 3, 4), memory)
    torch.testing.assert_close(found, attention.layer(torch.cat([query, memory.mean(dim=1)], dim=1)))
    sharp = attention(query, torch.stack([query, -query, -query], dim=1) * 1e4, memory)
    torch.testing.assert_close(sharp, attention.layer(torch.cat([query, memory[:, 0]], dim=1)))


def test_hybrid_attention_by_a_loop():
    """Of 5 steps, with a window of 4: one step before, itself, two after."""
    attention = HybridAttention(encoded=6, state=4, keys=3, conv_width=4, filters=2)
    keys, last = torch.randn(1, 5, 3), torch.rand(1, 5)
    state = (torch.randn(1, 2), torch.randn(1, 2))
    scores = []
    for step in range(5):
        window = [float(last[0, at]) if 0 <= at < 5 else 0.0 for at in range(step - 1, step + 3)]
        seen = attention.seen.weight[:, 0] @ torch.tensor(window)
        inner = keys[0, step] + attention.state.weight @ torch.cat([state[1][0], state[0][0]])
        inner = inner + attention.mixed.weight[:, :, 0] @ seen + attention.bias
        scores.append(attention.weights @ inner.tanh())
    torch.testing.assert_close(attention(keys, state, last), torch.stack(scores)[None].softmax(dim=1))


def test_noise_contrastive_estimation_by_hand():
    """Two words of one pair and one noise word, all logits 0 but for the expected counts k·p(word)."""
    model = Word2Vec(hidden=2, vocab=3, negatives=2)
    nn.init.zeros_(model.contexts.weight)
    share = [math.log((word + 2) / (word + 1)) / math.log(4) for word in range(3)]
    assert sum(share) == pytest.approx(1)
    output = model(torch.tensor([[0]]), torch.tensor([[1]]), torch.tensor([2, 0]))

    def missed(logit):
        return math.log1p(math.exp(-logit))

    logits = [-math.log(2 * share[word]) for word in (1, 2, 0)]
    expected = missed(logits[0]) + missed(-logits[1]) + missed(-logits[2])
    assert float(contrastive_loss(output, None).detach()) == pytest.approx(expected, rel=1e-5)


def test_attention_of_heads_by_a_loop():
    query, key, value = (torch.randn(1, 4, 6) for _ in range(3))
    found = attend(query, key, value, heads=2, causal=True)
    for head in range(2):
        part = slice(3 * head, 3 * head + 3)
        for step in range(4):
            weights = (key[0, : step + 1, part] @ query[0, step, part] / math.sqrt(3)).softmax(dim=0)
            torch.testing.assert_close(found[0, step, part], weights @ value[0, : step + 1, part])
