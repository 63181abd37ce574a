"""Models whose code is known to change nothing are looked at once, and nothing of them is kept; and when not so."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from measure.fast_count import autograd_reach
from measure.fast_count.block_likeness import Likeness, prepared
from measure.fast_count.fast_count import fast_count
from tests.support.nets.fast_nets import Made, agree


def _resnet():
    with torch.device("meta"):
        return torchvision.models.resnet18(), torch.empty(2, 3, 64, 64)


def _prepared(model, train=None, known_code=True):
    """(whether nothing of its modules is kept, whether its likeness was taken already)."""
    parts, alike = prepared(model, train, known_code)
    return parts.settled, alike is not None


def test_a_model_of_torchvision_is_settled():
    model, _ = _resnet()
    assert _prepared(model) == (True, True)
    assert _prepared(model, train=True) == (True, True)
    assert _prepared(model, train=False) == (True, False)  # it runs in another mode than it is in
    assert _prepared(model, known_code=False) == (False, False)
    assert _prepared(torchvision.models.resnet18()) == (False, False)


def _hooked(model):
    model.layer3[1].register_forward_hook(lambda *_: None)


def _with_a_function(model):
    model.layer3[1].relu = Made(lambda m, x: x.relu())


def _elsewhere(model):
    model.layer3[1].bn1.running_mean = torch.zeros(256)


def _held(model):
    model.layer3[1].aside = torch.zeros(2)


@pytest.mark.parametrize("change", [_hooked, _with_a_function, _elsewhere, _held])
def test_a_model_is_not_settled_for_one_part_of_it(change):
    model, x = _resnet()
    change(model)
    before = {name: (id(tensor), tensor._version) for name, tensor in model.named_buffers()}
    assert not _prepared(model)[0]
    found, plain = fast_count(model, (x,)), fast_count(model, (x,), reuse=False)
    assert not found.executed, found.notes
    assert (found.forward_flop, found.backward_flop) == (plain.forward_flop, plain.backward_flop)
    if change is _elsewhere:  # a copy ran: nothing of the model itself was written
        assert {name: (id(tensor), tensor._version) for name, tensor in model.named_buffers()} == before


@pytest.mark.parametrize("train", [None, True, False])
def test_modes_gradients_and_forwards_are_as_before(train):
    model, x = _resnet()
    model.layer2.eval()
    model.fc.weight.grad = gradient = torch.empty_like(model.fc.weight)
    modes = [module.training for module in model.modules()]
    found, plain = fast_count(model, (x,), train=train), fast_count(model, (x,), train=train, reuse=False)
    assert (found.forward_flop, found.backward_flop) == (plain.forward_flop, plain.backward_flop)
    assert found.replayed > 0
    assert [module.training for module in model.modules()] == modes
    assert model.fc.weight.grad is gradient
    assert not [module for module in model.modules() if "forward" in vars(module)]
    assert (F.relu.__name__, nn.BatchNorm2d.forward.__name__) == ("relu", "forward")  # PyTorch has its own again


def test_a_loss_that_writes_gradients_is_undone():
    model, x = _resnet()

    def loss_of(out):
        model.fc.weight.grad = torch.empty_like(model.fc.weight)
        return out

    fast_count(model, (x,), loss_of=loss_of)
    assert model.fc.weight.grad is None


def _by_chance(x):
    return x.relu() if random.random() < 0.5 else x.tanh()


def test_a_function_of_ones_own_in_a_layer_of_torch_may_draw_random_numbers():
    with torch.device("meta"):
        model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, activation=_by_chance))
    random.seed(1)
    before = random.getstate()
    found = fast_count(model, (torch.empty(2, 5, 8),))
    assert "random numbers" in found.notes[0]
    assert random.getstate() == before


def test_what_trains_may_change_between_two_counts():
    model, x = _resnet()
    all_train = fast_count(model, (x,))
    model.layer4[1].requires_grad_(False)
    model.layer3[0].conv2 = nn.Conv2d(256, 256, 1, device="meta")
    now, plain = fast_count(model, (x,)), fast_count(model, (x,), reuse=False)
    assert (now.forward_flop, now.backward_flop) == (plain.forward_flop, plain.backward_flop)
    assert now.backward_flop < all_train.backward_flop


class Regaining(nn.Module):
    """A block that turns gradients on for itself."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8))

    def forward(self, x):
        with torch.enable_grad():
            return self.inner(x)


def _without_gradients(m, x):
    with torch.no_grad():
        for block in m.blocks:
            x = block(x)
    return x


def test_alike_blocks_that_turn_gradients_on_have_them_each_time():
    """Three blocks: every weight has a gradient, and every input but the first."""
    model = Made(_without_gradients, blocks=nn.ModuleList(Regaining() for _ in range(3)))
    found = agree(model, (torch.randn(4, 8),), by_module=False)
    assert (found.forward_flop, found.backward_flop) == (3 * 512, 5 * 512)
    assert found.replayed > 0


def test_a_likeness_knows_of_modes_and_of_tensors_elsewhere():
    model, _ = _resnet()
    assert (Likeness(model).modes, Likeness(model).on_meta) == ({True}, True)
    model.layer1[0].bn1.eval()
    model.fc.bias = nn.Parameter(torch.zeros(1000))
    assert (Likeness(model).modes, Likeness(model).on_meta) == ({True, False}, False)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ReluBackward0", "safe"),
        ("AddBackward12", "safe"),
        ("ExpandBackward0_copy", "safe"),
        ("ReluBackward", "other"),  # a function of one's own that is named so
        ("ReluBackward_copy", "other"),
        ("Backward0", "other"),
        ("MmBackward0", "other"),
        ("CloneBackward0", "copy"),
        ("AccumulateGrad", "leaf"),
    ],
)
def test_a_nodes_class_is_by_its_name(name, kind):
    assert autograd_reach._classify(name) == kind
