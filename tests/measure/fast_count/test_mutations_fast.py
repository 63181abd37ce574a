"""Tests of the tests: each rule of the fast count is spoilt in turn, and the comparison must notice."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch

from measure.fast_count import (
    autograd_reach,
    block_likeness,
    block_replay,
    dispatch_mode,
    fast_count,
    intercepted_calls,
    meta_outputs,
    product_cost,
)
from tests.measure.fast_count.test_fast_outputs import test_an_output_is_the_kernels
from tests.support.nets.fast_nets import NETS, agree


def check(name):
    torch.manual_seed(0)
    make, given = NETS[name]
    agree(make(), (given if isinstance(given, torch.Tensor) else torch.randn(given),))


def gradients_of_all(rows):
    return lambda forward, mask: rows(forward, tuple(True for _ in mask))


def spoilt_gradients(monkeypatch, name, spoil):
    node, rows = product_cost.GRADIENTS[name]
    monkeypatch.setitem(product_cost.GRADIENTS, name, (node, spoil(rows)))


def unmasked(monkeypatch):
    spoilt_gradients(monkeypatch, "aten.addmm", gradients_of_all)


def unmasked_convolution(monkeypatch):
    spoilt_gradients(monkeypatch, "aten.convolution", gradients_of_all)


def half_attention(monkeypatch):
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    spoilt_gradients(monkeypatch, name, lambda rows: lambda forward, mask: [])


def no_layers(monkeypatch):
    monkeypatch.setattr(fast_count, "watched", _watched_without_patches(fast_count.watched))


def _watched_without_patches(watched):
    @contextlib.contextmanager
    def without(*args):
        patches, intercepted_calls.PATCHES = intercepted_calls.PATCHES, ()
        try:
            with watched(*args):
                yield
        finally:
            intercepted_calls.PATCHES = patches

    return without


def everything_is_safe(monkeypatch):
    monkeypatch.setattr(
        autograd_reach, "class_of", lambda node: "leaf" if type(node).__name__ == "AccumulateGrad" else "safe"
    )


def custom_nodes_are_safe(monkeypatch):
    original = autograd_reach.class_of
    monkeypatch.setattr(
        autograd_reach,
        "class_of",
        lambda node: "safe" if original(node) == "other" and "Doubling" in type(node).__name__ else original(node),
    )


def slices_are_safe(monkeypatch):
    monkeypatch.setattr(dispatch_mode, "_unsafely", lambda run: run)


def signature_without_settings(monkeypatch):
    monkeypatch.setattr(block_likeness, "_settings", lambda *args: ())


def signature_without_requires_grad(monkeypatch):
    original = block_likeness._held
    monkeypatch.setattr(block_likeness, "_held", lambda own: [part for part in original(own) if type(part) is not bool])


def inputs_without_gradients(monkeypatch):
    original = block_replay._described
    monkeypatch.setattr(block_replay, "_described", lambda value, tensors: _shorter(original(value, tensors)))


def _shorter(part):
    return part[:3] if isinstance(part, tuple) and len(part) == 4 and isinstance(part[3], bool) else part


def written_inputs_forgiven(monkeypatch):
    monkeypatch.setattr(block_replay, "_same", lambda before, now: True)


def replays_forgotten(monkeypatch):
    monkeypatch.setattr(block_replay.Replay, "products", lambda self: frozenset())


def all_outputs_alike(monkeypatch):
    original = block_replay.Replay.products

    def every(self):
        return original(dataclasses.replace(self, wanted=set(range(len(self.template.outputs)))))

    monkeypatch.setattr(block_replay.Replay, "products", every)


def last_number_wins(monkeypatch):
    class Overwriting(dict):
        def setdefault(self, key, value):
            self[key] = value

    original = fast_count.Tape
    monkeypatch.setattr(fast_count, "Tape", lambda: original(numbered=Overwriting()))


MUTATIONS = {
    "gradients that nobody asked for": (unmasked, "linear"),
    "gradients of a frozen weight": (unmasked, "frozen last layer"),
    "the gradient of the image": (unmasked_convolution, "grouped and depthwise"),
    "only a bias": (unmasked_convolution, "only a bias trains"),
    "attention without a backward pass": (half_attention, "causal attention"),
    "lstm taken apart": (no_layers, "lstm"),
    "attention taken apart": (no_layers, "attention, only its values train"),
    "products are safe": (everything_is_safe, "linear"),
    "inverses are safe": (everything_is_safe, "inverse"),
    "functions of one's own are safe": (custom_nodes_are_safe, "a function of one's own"),
    "settings do not matter": (signature_without_settings, "blocks alike but for a number"),
    "what trains does not matter": (signature_without_requires_grad, "blocks alike but for what trains"),
    "an input's gradient does not matter": (inputs_without_gradients, "blocks alike, all before one frozen"),
    "lists may be written": (written_inputs_forgiven, "blocks that fill a list each"),
    "replays cost nothing back": (replays_forgotten, "blocks alike"),
    "every output reaches the loss": (all_outputs_alike, "blocks of which one output is dropped"),
    "a product without a node takes another's": (last_number_wins, "a product beside the graph"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_spoilt_rule_is_noticed(name, monkeypatch):
    spoil, net = MUTATIONS[name]
    check(net)
    dispatch_mode.clear_cache()
    spoil(monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError, TypeError, ValueError)):
        check(net)
    dispatch_mode.clear_cache()


def test_a_spoilt_output_is_noticed(monkeypatch):
    relu = torch.ops.aten.relu.default
    test_an_output_is_the_kernels(relu)
    monkeypatch.setitem(meta_outputs.SHORT, relu, lambda x: torch.empty(x.shape, dtype=x.dtype, device="meta"))
    with pytest.raises(AssertionError):
        test_an_output_is_the_kernels(relu)
