"""Models of text and speech hold to `tests/support/oracles/sequence_formulas.py` on fake and meta tensors, and train on
real ones."""

import itertools

import pytest
import torch

from analysis.operators.registry import not_understood, total
from measure.fake.mode import to_fake
from measure.operations.tracer import StepParts, trace
from tests.support.bf16 import skip_without_bf16
from tests.support.oracles.sequence_formulas import BASE_PARAMETERS, PARAMETERS, PRODUCTS, TINY
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file
from workloads.catalogue.catalogue import ENTRIES, factory
from workloads.catamount import sequences
from workloads.training.step import OPTIMIZERS, TrainingStep

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


def test_every_name_of_the_catalogue_is_made_here():
    known = [name for name in ENTRIES if factory(name) == "workloads.catamount.sequences:get"]
    assert known == list(sequences.FAMILIES) == NAMES == list(PARAMETERS) == list(PRODUCTS)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_at_the_base_sizes_are_those_that_catamount_asserts(name):
    workload, model = meta(name)
    assert count(model) == BASE_PARAMETERS[name] == PARAMETERS[name](**workload.hyper)


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("bert", {"vocab": 28_996}, 108_932_934),  # cased
        # 33h² + 3hv + 12h, of the paper's table 3: h = 22,350.
        ("nmt", {"hidden": 22_350}, 33 * 22_350**2 + 3 * 22_350 * 36_548 + 12 * 22_350),
        # 16h² + 2hv + 8h + v: h = 37,948.
        ("wordlm", {"hidden": 37_948}, 16 * 37_948**2 + 2 * 37_948 * 10_004 + 8 * 37_948 + 10_004),
        # 22h² + 2hv + 20h + v: h = 81,400.
        ("charlm", {"hidden": 81_400}, 22 * 81_400**2 + 2 * 81_400 * 98 + 20 * 81_400 + 98),
    ],
)
def test_parameters_at_sizes_that_catamount_published(name, sizes, expected):
    workload, model = meta(name, **sizes)
    assert count(model) == expected == PARAMETERS[name](**workload.hyper)


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
    assert not_understood(recorded.operations) == {}
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


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls_on_a_batch_that_is_seen_again(name):
    built = parts(name, 4)(None)
    built.step.optimizer = torch.optim.Adam(built.model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        built.step()
        losses.append(float(built.step.last_loss))
    assert losses[-1] < 0.7 * losses[0], losses[::13]


@pytest.mark.parametrize("name", NAMES)
def test_batches_repeat_with_their_generator(name):
    workload = sequences.get(name, **TINY[name])

    def drawn(seed):
        batch = workload.batch(workload.hyper, 3, CPU, torch.Generator().manual_seed(seed))
        return [*batch.inputs, *(batch.target if isinstance(batch.target, tuple) else (batch.target,))]

    pairs = list(itertools.zip_longest(drawn(1), drawn(1)))
    assert all(one is None or torch.equal(one, other) for one, other in pairs)
    assert any(one is not None and not torch.equal(one, other) for one, other in zip(drawn(1), drawn(2), strict=True))
    assert drawn(1)[0].shape[0] == 3


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
