"""The fast count, the executed trace and a count of what really runs, by hand, agree on random nets of every kind."""

from __future__ import annotations

from collections import Counter
from math import prod

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from torch.utils._python_dispatch import TorchDispatchMode

from measure.fast_count.fast_count import fast_count
from tests.support.nets import random_nets
from tests.support.nets.fast_nets import executed
from tests.support.nets.random_cases import CASES

pytestmark = [
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True"),  # a checkpoint in a reentrant one
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),  # on a layer whose input needs no gradient
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]
OPTIONS = st.tuples(st.booleans(), st.booleans())
SETTINGS = {
    "phases": [Phase.generate],  # shrinking runs for minutes; what is found is made a case by hand
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}
NOT_RUN = ("mutated", "extra time", "should return None", "not found in storage")
"""In what PyTorch says of a net that it cannot train."""


class Counting(TorchDispatchMode):
    """2 FLOP for each multiply-add of what really runs on a CPU, by phase. names: products that it cannot count."""

    def __init__(self):
        super().__init__()
        self.phase, self.flop, self.names = "forward", Counter(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__.rstrip("_")
        if name in MACS:
            again = self.phase == "backward" and random_nets.running[0] > 0
            self.flop["recompute" if again else self.phase] += 2 * MACS[name](args, out)
        elif name in NOT_BY_HAND:
            self.names.add(name)
        return out


def _convolution(args, out):
    weight = args[1]  # (out, in / groups, …), transposed (in, out / groups, …)
    return (args[0].numel() if args[6] else out.numel()) * prod(weight.shape[1:])


def _convolution_backward(args, _out):
    gradient, source, weight = args[:3]
    macs = (source.numel() if args[7] else gradient.numel()) * prod(weight.shape[1:])
    return macs * sum(args[10][:2])


def _attention(args, _out):
    query, key, value = args[:3]
    return prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _layer(args, _out):
    source, weight, recurrent = args[:3]
    return source.shape[0] * source.shape[1] * (weight.numel() + recurrent.numel())


MACS = {
    "mm": lambda a, _: a[0].shape[0] * a[0].shape[1] * a[1].shape[1],
    "addmm": lambda a, _: a[1].shape[0] * a[1].shape[1] * a[2].shape[1],
    "bmm": lambda a, _: prod(a[0].shape) * a[1].shape[2],
    "baddbmm": lambda a, _: prod(a[1].shape) * a[2].shape[2],
    "mv": lambda a, _: a[0].numel(),
    "addmv": lambda a, _: a[1].numel(),
    "dot": lambda a, _: a[0].numel(),
    "vdot": lambda a, _: a[0].numel(),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda a, o: 2 * _attention(a[1:], o),
    "mkldnn_rnn_layer": _layer,
    "mkldnn_rnn_layer_backward": lambda a, o: 2 * _layer(a, o),
}
NOT_BY_HAND = {"_trilinear", "addbmm", "addr", "einsum", "linear", "matmul"}


def really(net, given, train):
    """Model FLOP by phase of a step on real tensors; None where the net has a product that is not counted by hand."""
    model = random_nets.made(net).train(train)
    x = random_nets.inputs(given)
    with Counting() as counting:
        out = model(*x)
        total = sum(t.sum() for t in torch.utils._pytree.tree_leaves(out) if torch.is_tensor(t) and t.requires_grad)
        counting.phase = "backward"
        if torch.is_tensor(total):
            total.backward()
    return None if counting.names else tuple(counting.flop[phase] for phase in ("forward", "backward", "recompute"))


def three(net, given, train):
    """(forward, backward, recompute) of the fast count, of it without replays, of the executed trace, of what runs."""
    model, x = random_nets.made(net), random_nets.inputs(given)
    counts = [fast_count(model, x, train=train), fast_count(model, x, train=train, reuse=False)]
    totals, _, strange = executed(model, x, train=train)
    assert not strange
    traced = tuple(totals[phase] for phase in ("forward", "backward", "recompute"))
    fast = [(c.forward_flop, c.backward_flop, c.recompute_flop) for c in counts]
    return [*fast, traced, really(net, given, train) or traced], counts[0]


NETS = given(random_nets.nets, OPTIONS, st.booleans())
"""The same ones in the same order each time: fewer examples are the first of many."""


@settings(max_examples=50, **SETTINGS)
@NETS
def test_random_nets_are_counted_alike_by_three_routes(net, given, train):
    counted_alike(net, given, train)


@pytest.mark.slow
@settings(max_examples=400, **SETTINGS)
@NETS
def test_many_random_nets_are_counted_alike_by_three_routes(net, given, train):
    counted_alike(net, given, train)


def counted_alike(net, given, train):
    try:
        really(net, given, train)
    except RuntimeError as fault:
        assume(not any(words in str(fault) for words in NOT_RUN))
        raise
    found, _ = three(net, given, train)
    assert len(set(found)) == 1, found


@pytest.mark.parametrize("given", [(False, False), (True, True)], ids=["data", "inputs that need a gradient"])
@pytest.mark.parametrize("name", CASES)
def test_cases_are_counted_alike_by_three_routes(name, given):
    found, _ = three((CASES[name], 0), given, True)
    assert len(set(found)) == 1, found
    assert found[0][0] > 0


def test_checkpoints_inside_one_another_by_hand():
    """Three layers of 2 · 4 · 8 · 8 FLOP: the outer one computes all again, the inner one its own once more; the inner
    one stops where nothing more is saved, before the last bias is added. First input without a gradient."""
    (fast, *_), _ = three((CASES["a checkpoint in a checkpoint"], 0), (False, False), True)
    layer = 2 * 4 * 8 * 8
    forward, backward, recompute = fast
    assert (forward, backward) == (3 * layer, 5 * layer)
    assert recompute == really((CASES["a checkpoint in a checkpoint"], 0), (False, False), True)[2]


@pytest.mark.parametrize(
    ("spoilt", "by"),
    [
        (
            "measure.fast_count.product_cost.ProductForm.backward_flop",
            lambda self, mask: 2 * sum(f for _, f in self.backward(mask)),
        ),
        ("measure.fast_count.fast_count.add_recomputation", lambda _walk, _mode: None),
        ("measure.fast_count.fast_count.check_unhooked", lambda *_a, **_k: None),
        ("measure.fast_count.fast_count.check_predicted", lambda *_a: None),
    ],
)
def test_cases_notice_a_spoilt_count(monkeypatch, spoilt, by):
    monkeypatch.setattr(spoilt, by)
    wrong = 0
    for steps in CASES.values():
        model, x = random_nets.made((steps, 0)), random_nets.inputs((False, False))
        count, (totals, _, _) = fast_count(model, x, train=True), executed(model, x, train=True)
        found = (count.forward_flop, count.backward_flop, count.recompute_flop)
        wrong += found != tuple(totals[phase] for phase in ("forward", "backward", "recompute"))
    assert wrong
