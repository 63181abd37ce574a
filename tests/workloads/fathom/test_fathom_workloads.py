"""Definition, known answer: each part of Fathom's workloads against PyTorch's own or a loop by hand; each learns."""

import math

import pytest
import torch
from torch import nn

from tests.support.oracles.fathom_formulas import TINY
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file
from workloads.catalogue import entries as table
from workloads.fathom import memnet, seq2seq, speech
from workloads.fathom.registry import FAMILIES, get
from workloads.fathom.seq2seq import clip_gradients
from workloads.step import InferenceStep, TrainingStep, optimizer_of

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


QUICK = {
    "seq2seq": {"hidden": 16, "layers": 1, "vocab": 40, "source_words": 4, "target_words": 5, "negatives": 20},
    "fathom-speech": {"hidden": 32, "frames": 12, "labels": 6, "phonemes": 8},
    "autoenc": {"pixels": 100, "latent": 10},
    "residual": {"image_size": 16, "num_classes": 4, "width": 8},
    "fathom-vgg": {"image_size": 32, "num_classes": 4, "width": 4},
    "fathom-alexnet": {"image_size": 64, "num_classes": 4, "width": 4},
    "deepq": {"hidden": 32},
    "gpt2": {"d_model": 32, "seq": 8, "vocab": 16},
    "vit": {"image_size": 16, "num_classes": 4, "d_model": 32, "layers": 1},
}
"""Sizes at which a dozen steps take well under a second."""


def losses(name, steps, batch_size=8, batches=2, **sizes):
    """The mean loss over the batches before training and after it, all on the same batches, and the model."""
    workload = get(f"{name}@small", **{**QUICK.get(table.base(name), {}), **sizes})
    model, drawn = workload.build(**workload.hyper), seeded()
    seen = [workload.batch(workload.hyper, batch_size, CPU, drawn) for _ in range(batches)]
    step = TrainingStep(model, workload.loss, optimizer_of("own", workload, model.parameters()), seen, "cpu")

    def mean():
        with torch.no_grad():
            return sum(float(workload.loss(model(*each.inputs), each.target)) for each in seen) / batches

    before = mean()
    for _ in range(steps):
        step()
    return before, mean(), model


FALL = {"deepq": 0.995, "gpt2": 0.98, "autoenc": 0.97, "seq2seq": 0.97, "fathom-vgg": 0.98}
"""What is left of the loss at most, where that is not 0.9. As coded deepq gets a gradient of some states alone."""


@pytest.mark.parametrize("name", FAMILIES)
def test_the_loss_falls_in_a_few_steps_of_its_own_optimizer(name):
    before, after, _ = losses(name, 16)
    assert after < FALL.get(table.base(name), 0.9) * before


SMALLEST = {
    "seq2seq": {"vocab": 5, "target_words": 2},  # a word beside four signs; a word and the end
    "memnet": {"vocab": 20, "sentence": 6, "memory": 2},  # 19 words and padding; mary went back to the office
    "fathom-speech": {"frames": 3, "labels": 3, "phonemes": 3},  # the blank and two that can follow each other
    "residual": {"image_size": 4, "width": 2},  # halved twice; a bottleneck has half of the channels
    "residual@as_paper": {"image_size": 1},
    "deepq": {"actions": 4},  # those of the game: none, fire, right and left
}
"""The smallest sizes that a workload takes."""


@pytest.mark.parametrize(("name", "sizes"), SMALLEST.items())
def test_it_trains_at_its_smallest_sizes(name, sizes):
    assert math.isfinite(losses(name, 1, **sizes)[1])


@pytest.mark.parametrize("name", FAMILIES)
def test_inference_is_the_same_model_in_evaluation_mode_without_gradients(name):
    workload = get(f"{name}@small", **QUICK.get(table.base(name), {}))
    model = workload.build(**workload.hyper)
    batch, heard = workload.batch(workload.hyper, 2, CPU, seeded()), []
    step = InferenceStep(model, [batch], "cpu")
    step(heard.append)
    output = step.last_output[0] if isinstance(step.last_output, tuple) else step.last_output
    assert heard == ["forward", "end"]
    assert not output.requires_grad
    assert torch.isfinite(output).all()
    assert not model.training


# --- seq2seq ---


def test_bahdanaus_attention_by_a_loop():
    attention = seq2seq.BahdanauAttention(hidden=4, layers=2)
    memory, states = torch.randn(1, 3, 4), [(torch.randn(1, 4), torch.randn(1, 4)) for _ in range(2)]
    keys = attention.keys(memory.transpose(1, 2)).transpose(1, 2)
    query = attention.query(torch.cat([states[0][0], states[0][1], states[1][0], states[1][1]], dim=1))[0]
    scores = [attention.scores @ (attention.keys.weight[:, :, 0] @ memory[0, at] + query).tanh() for at in range(3)]
    weights = torch.stack(scores).softmax(dim=0)
    expected = sum(weights[at] * memory[0, at] for at in range(3))
    torch.testing.assert_close(attention(states, keys, memory)[0], expected)


def test_sampled_logits_by_hand():
    """Logit of a word less ln(count · p(word)); a negative that is the label is left out."""
    model = seq2seq.Seq2Seq(**TINY["seq2seq"])
    outputs, labels = torch.randn(1, 2, 6), torch.tensor([[5, 9]])
    negatives = torch.tensor([[3, 5, 8], [9, 0, 1]])
    found = model._sampled(outputs, labels, negatives)[0]
    for step in range(2):
        for place, word in enumerate([int(labels[0, step]), *negatives[step].tolist()]):
            share = math.log((word + 2) / (word + 1)) / math.log(31)
            logit = outputs[0, step] @ model.projection.weight[word] + model.projection.bias[word]
            if place and word == int(labels[0, step]):
                assert float(found[step, place].detach()) == -1e4
            else:
                torch.testing.assert_close(found[step, place], logit - math.log(3 * share))


# --- memnet ---


def test_a_memory_network_by_loops():
    model = memnet.MemNet(embedding=3, vocab=20, sentence=6, memory=4, hops=2)
    story, question, _ = memnet.draw_stories(4, 6, 1, CPU, seeded())

    def bag(words, table):
        vectors = []
        for component in range(3):
            total = 0.0
            for place, word in enumerate(words.tolist()):
                weight = 1 + 4 * (component + 1 - 2) * (place + 1 - 3.5) / (3 * 6)
                total += weight * float(table.weight[word, component].detach())
            vectors.append(total)
        return torch.tensor(vectors)

    state = bag(question[0], model.question)
    memory = [bag(sentence, model.story) + model.time[at] for at, sentence in enumerate(story[0])]
    for _ in range(2):
        weights = torch.stack([each @ state for each in memory]).softmax(dim=0)
        state = model.between.weight @ state + sum(w * each for w, each in zip(weights, memory, strict=True))
    torch.testing.assert_close(model(story, question)[0], model.answer.weight @ state)


# --- speech ---


def test_as_coded_nothing_is_recurrent_and_as_in_the_paper_every_frame_sees_every_other():
    """Which outputs change with the fourth of six frames: its own alone, or all."""
    for name, expected in (("fathom-speech", [3]), ("fathom-speech@as_paper", list(range(6)))):
        workload = get(name, **{**TINY["fathom-speech"], "frames": 6})
        model, sound = workload.build(**workload.hyper), torch.randn(1, 6, 5)
        other = sound.clone()
        other[:, 3] += 1.0
        differ = (model(sound) - model(other)).abs().amax(dim=(1, 2)) > 1e-7
        assert differ.nonzero().flatten().tolist() == expected, name


def test_deep_speechs_recurrence_by_a_loop():
    model = speech.DeepSpeech(hidden=4, coefficients=3, phonemes=5)
    sound = torch.randn(1, 3, 3)
    heard = sound[0]
    for layer in model.layers:
        heard = (heard @ layer.weight.t() + layer.bias).clamp(0, 20)
    entered = heard @ model.entered.weight.t() + model.entered.bias
    onward, back, states = torch.zeros(4), torch.zeros(4), torch.zeros(3, 4)
    for at in range(3):
        onward = (entered[at] + model.onward.weight @ onward).clamp(0, 20)
        back = (entered[2 - at] + model.backward_.weight @ back).clamp(0, 20)
        states[at] += onward
        states[2 - at] += back
    logits = model.output((states @ model.fifth.weight.t() + model.fifth.bias).clamp(0, 20))
    torch.testing.assert_close(model(sound)[:, 0], logits.log_softmax(dim=1))


def test_gradients_are_clipped_within_the_step():
    """Of norm 10 to 5 together: halved, and SGD of rate 1 goes that far. Each to 2: the first is left as it is."""
    weights = [nn.Parameter(torch.zeros(1, 1)), nn.Parameter(torch.zeros(1, 1))]
    for parameter, gradient in zip(weights, (6.0, 8.0), strict=True):
        parameter.grad = torch.full((1, 1), gradient)
    clip_gradients(torch.optim.SGD(weights, lr=1.0), 5.0).step()
    assert [weight.item() for weight in weights] == pytest.approx([-3, -4], rel=1e-5)
    weights = [nn.Parameter(torch.zeros(1, 1)) for _ in range(2)]
    for parameter, gradient in zip(weights, (1.0, 8.0), strict=True):
        parameter.grad = torch.full((1, 1), gradient)
    clip_gradients(torch.optim.SGD(weights, lr=1.0), 2.0, 0.0).step()
    assert [weight.item() for weight in weights] == pytest.approx([-1, -2], rel=1e-5)


def test_a_fused_reader_is_the_unrolled_one():
    """Of the same weights. A cell's gates stand entered, new, kept, shown, and 1 is added to the third; PyTorch's
    stand entered, kept, new, shown."""
    hidden = QUICK["seq2seq"]["hidden"]
    sizes = {**QUICK["seq2seq"], "layers": 2}
    unrolled, fused = (get(f"{name}@small", **sizes) for name in ("seq2seq", "seq2seq@fused"))
    ours, theirs = unrolled.build(**unrolled.hyper), fused.build(**fused.hyper)
    weights = {name: value for name, value in ours.state_dict().items() if not name.startswith("reader.")}
    for layer, cell in enumerate(ours.reader.cells):
        first, new, kept, shown = cell.gates.weight.detach().chunk(4)
        weight = torch.cat([first, kept, new, shown])
        first, new, kept, shown = cell.gates.bias.detach().chunk(4)
        weights[f"reader.weight_ih_l{layer}"], weights[f"reader.weight_hh_l{layer}"] = weight.split(hidden, dim=1)
        weights[f"reader.bias_ih_l{layer}"] = torch.cat([first, kept + 1, new, shown])
    theirs.load_state_dict(weights)
    batch = unrolled.batch(unrolled.hyper, 3, CPU, seeded())
    for mode in (True, False):
        expected, found = (model.train(mode)(*batch.inputs)[0] for model in (ours, theirs))
        torch.testing.assert_close(found, expected)
    begun = fused.build(**fused.hyper).reader.bias_ih_l0
    assert (begun[hidden : 2 * hidden] == 1).all()
