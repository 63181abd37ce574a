"""Definition, command, injected fault: how a sweep plans and measures models outside the catalogue; its refusals."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.operators import registry
from analysis.operators.registry import total
from runners.sweep import options as sweep_options
from runners.sweep import request
from runners.sweep.cell import reference_trace
from runners.sweep.plan import Grid, cells, reason_against
from runners.workers.any_model import factory_of, hyper_of_cell
from runners.workers.devices import ProbeResult
from tests.support.fakes.real_sweeps import QUICK, here

NET = """
import torch
from torch import nn
from helper import WIDTH
from workloads.catalogue.base import Batch

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = nn.Embedding(50, width)
        self.first = nn.Linear(16, width)
        self.last = nn.Linear(width, 3)
    def forward(self, x, ids):
        return self.last(torch.relu(self.first(x)) + self.table(ids).mean(1))

def build(width: int = WIDTH):
    return Net(width)

def build_batch(size, device, generator):
    x = torch.randn(size, 16, device=device, generator=generator)
    ids = torch.randint(0, 50, (size, 7), device=device, generator=generator)
    return Batch((x, ids), torch.randint(0, 3, (size,), device=device, generator=generator))

def build_loss(output, target):
    return nn.functional.cross_entropy(output, target)

def untrained():
    return nn.ReLU(), torch.randn(2, 3)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "helper.py").write_text("WIDTH = 8\n")
    return f"{tmp_path}/net.py:build"


def parsed(*arguments: str) -> argparse.Namespace:
    return sweep_options.parser().parse_args(arguments)


def grid(*arguments: str) -> Grid:
    options = parsed(*arguments)
    request.check_options(options, {})
    return request.grid_of(options, {}, ProbeResult(device="cpu"))


def test_a_model_of_ones_own_is_a_cell_with_what_was_asked_for(net: str) -> None:
    own, other = sorted(cells(grid("--models", f"{net},resnet18", "--size", "width=64")), key=lambda c: c.model)
    assert (own.model, own.batch_size, other.model) == (net, 8, "resnet18")
    assert hyper_of_cell(own) == {"width": 64}
    assert hyper_of_cell(other) == {"image_size": 224, "num_classes": 1000, "width": 64}
    assert factory_of(own) == "runners.workers.any_model:get"
    assert factory_of(other) == "workloads.torchvision_models:get"
    assert own.model_digest
    assert not other.model_digest
    assert not reason_against(own)


CHAIN = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

def build_inputs(size, device, generator):
    return torch.randn(size, 8, device=device, generator=generator)
"""


@pytest.mark.parametrize(
    ("options", "flop"),
    [
        ((), 2 * 10 * (128 + 64) + 2 * 10 * (128 + 64 + 64)),  # weights of both layers, and the input of the second
        (("--frozen", "0"), 2 * 10 * (128 + 64) + 2 * 10 * 64),  # the second layer's weight alone
        (("--frozen", "2.weight"), 2 * 10 * (128 + 64) + 2 * 10 * (128 + 64)),
        (("--checkpoint", "0"), 2 * 10 * (128 + 64) + 2 * 10 * (128 + 64 + 64)),  # model FLOP: once
    ],
)
def test_what_is_frozen_is_no_part_of_a_step(options: tuple[str, ...], flop: int, tmp_path: Path) -> None:
    """10 samples through 8 × 16 and 16 × 4: forward 2 · 10 · (128 + 64)."""
    (tmp_path / "chain.py").write_text(CHAIN)
    model = f"{tmp_path}/chain.py:build"
    (cell,) = cells(grid("--models", model, "--input", "8", "--batch-sizes", "10", *options))
    assert cell.frozen + cell.checkpoint == options[1:]
    found = reference_trace(cell)
    assert total([each for each in found.operations if each.phase != "recompute"]).model_flop == flop


OWN_PRODUCT = """
import flopledger, torch

@torch.library.custom_op("sweep_test::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w

product.register_fake(lambda x, w: x.new_empty(x.shape[0], w.shape[1]))
product.register_autograd(lambda ctx, gradient: (None, gradient.new_zeros(8, 4)))
flopledger.register("sweep_test::product", lambda x, w, out: 2 * x[0] * x[1] * w[1])

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 4))
    def forward(self, x):
        return product(x, self.weight)

def build():
    return Net()
"""


def test_an_operation_that_the_models_file_registers_is_counted_for_those_who_do_not_load_the_file(
    tmp_path: Path,
) -> None:
    """10 samples through 8 × 4: 2 · 10 · 8 · 4 FLOP, and a backward pass without products."""
    (tmp_path / "own.py").write_text(OWN_PRODUCT)
    (cell,) = cells(grid("--models", f"{tmp_path}/own.py:build", "--input", "8", "--batch-sizes", "10"))
    operations = reference_trace(cell).operations
    registry._ADDED.pop("sweep_test.product")  # as in the process that divides
    assert registry.total(operations).model_flop == 2 * 10 * 8 * 4
    assert registry.unsupported(operations) == {}
    without_cost = [replace(operation, rules=0) for operation in operations]
    assert registry.unsupported(without_cost) == {"sweep_test.product": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--models", "resnet5O"), "got 'resnet5O', nearest resnet50"),
        (("--models", "nets.py:build"), "there is no file nets.py"),
        (("--models", "model.onnx"), "is no model: expected a name of the catalogue"),
        (("--models", "resnet18", "--batch", "x.py:f"), "expected a model of the form file.py:function with it"),
        (("--models", "resnet18", "--input", "3xfour"), "--models: "),
    ],
)
def test_what_cannot_be_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        grid(*arguments)


def test_one_is_measured_resumed_and_refused_when_it_changed(net: str, tmp_path: Path) -> None:
    """Two inputs, a loss and a batch of its own, a module beside it; counted by another counter and by profile, too."""
    asked = (*QUICK, "--models", net, "--batch-sizes", "2", "--methods", "theory,one,exact", "--counters", "fvcore")
    first = here(*asked, "--out", "run", cwd=tmp_path, figures=False)
    assert first.returncode == 0, first.stderr
    # forward 2 × (2·16·8 + 2·8·3) = 608; backward: weights of both, inputs of the last alone: 608 + 96
    fractions = (tmp_path / "run" / "utilization.csv").read_text()
    assert f",{608 + 608 + 96}," in fractions
    again = here("--resume", "run", cwd=tmp_path, figures=False)
    assert "1 of 1 cells are measured already" in again.stderr, again.stderr
    (tmp_path / "helper.py").write_text("WIDTH = 16\n")
    changed = here("--resume", "run", cwd=tmp_path)
    assert changed.returncode == 2
    assert "its file is not the one that this run measured" in changed.stderr
    refused = here(*QUICK, "--models", net.replace(":build", ":untrained"), cwd=tmp_path)
    assert refused.returncode == 2
    assert "cannot be trained: it has no parameter that needs a gradient" in refused.stderr
