"""Definition, injected fault: `workloads.any_model` with a user's inputs; a misfit is named; no network is used."""

import os
import socket

import pytest
import torch

from results.errors import Unavailable
from workloads.any_model import building, get, reason

CPU = torch.device("cpu")


def batch_of(workload, size=2):
    return workload.batch(workload.hyper, size, CPU, torch.Generator().manual_seed(0))


def test_an_input_that_is_an_image_size_is_one():
    workload = get("vit_b_16", input="3x32x32")
    assert workload.hyper["image_size"] == 32
    assert batch_of(workload).inputs[0].shape == (2, 3, 32, 32)
    assert workload.loss is get("vit_b_16").loss
    clip = get("r3d_18", input="3x8x64x64")
    assert (clip.hyper["frames"], clip.hyper["image_size"]) == (8, 64)
    with pytest.raises(ValueError, match="divisible by 16, got 33"):
        get("vit_b_16", input="3x33x33")


def test_an_input_that_does_not_fit_names_the_module_and_the_shapes():
    workload = get("resnet18", input="4x32x32")
    model = workload.build(**workload.hyper)
    line = reason(model, batch_of(workload, 1).inputs)
    assert line.startswith("conv1 (Conv2d) got 1x4x32x32 float32: RuntimeError: ")
    assert "expected input[1, 4, 32, 32] to have 3 channels, but got 4 channels" in line
    assert "\n" not in line


class Deep(torch.nn.Module):
    """Catches what its first layer raises, then fails itself or in its second."""

    def __init__(self, own_fault=False):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Sequential(torch.nn.Linear(4, 4))
        self.norm = torch.nn.BatchNorm1d(4)
        self.own_fault = own_fault

    def forward(self, rows, lengths=None):
        try:
            self.first(rows)
        except RuntimeError:
            rows = self.norm(rows)
        if self.own_fault:
            raise KeyError("lengths\nof nothing")
        return self.second(rows[:, :3])


def test_the_innermost_module_that_failed_is_named_not_one_whose_fault_was_caught():
    model = Deep()
    before = model.norm.running_mean.clone()
    line = reason(model, (torch.randn(2, 4),))
    assert line.startswith("second.0 (Linear) got 2x3 float32: matrices of sizes 2x3 and 4x4 cannot be multiplied: ")
    assert torch.equal(model.norm.running_mean, before), "what the forward pass keeps is put back"
    line = reason(Deep(own_fault=True), (torch.randn(2, 4), torch.ones(2, dtype=torch.int64)))
    assert line == "Deep got 2x4 float32, 2 int64: KeyError: 'lengths\\nof nothing'"
    assert reason(Deep(), (torch.randn(2, 4), 1, 2)).startswith("Deep got 2x4 float32: TypeError: ")
    assert reason(torch.nn.Linear(4, 4), (torch.randn(2, 4),)) == ""
    assert not torch.nn.modules.module._global_forward_hooks, "none is left"


def test_the_network_is_closed_while_models_are_built_and_open_afterwards(monkeypatch):
    original = socket.getaddrinfo
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with building("the model"):
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        with pytest.raises(
            Unavailable, match=r"the model wants to download from weights.example: nothing is downloaded"
        ):
            socket.create_connection(("weights.example", 443))
    assert socket.getaddrinfo is original


def test_any_other_input_is_fed_as_it_is():
    workload = get("resnet18", input="3x40x64", num_classes=5)
    model, batch = workload.build(**workload.hyper), batch_of(workload)
    assert batch.inputs[0].shape == (2, 3, 40, 64)
    output = model(*batch.inputs)
    assert output.shape == (2, 5)
    assert workload.loss(output, batch.target).requires_grad
    for name, shape in (("ssd300_vgg16", "3x300x200"), ("resnet18", "x=3x32x32")):
        with pytest.raises(ValueError, match="expected no --input, as sizes decide its inputs"):
            get(name, input=shape)
