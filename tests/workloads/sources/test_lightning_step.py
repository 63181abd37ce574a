"""Definition, injected fault: LightningModules with their own training step, without lightning; refusals."""

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from measure.counters.adapters.dispatched import flopledger
from workloads.any_model import get
from workloads.step import TrainingStep, optimizer_of
from workloads.user_models import configured_optimizer

CPU = torch.device("cpu")

NET = """
    import torch
    from torch import nn

    class LightningModule(nn.Module):
        automatic_optimization = True
        def training_step(self, *_):
            raise NotImplementedError

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 5, bias=False)
            self.head = nn.Linear(5, 2, bias=False)
        def forward(self, x):
            return self.head(self.body(x))
        def training_step(self, batch, batch_idx):
            x, y = batch
            twice = self(x) + self(x)
            return {"loss": ((twice - y) ** 2).mean(), "other": 1}
        def configure_optimizers(self):
            return [torch.optim.Adagrad(self.parameters(), lr=0.5)], []

    def build():
        return Net()

    def build_batch(size, device, generator):
        return torch.randn(size, 8, generator=generator), torch.zeros(size, 2)

    class ByHand(Net):
        automatic_optimization = False

    def by_hand():
        return ByHand(), (torch.randn(2, 8), torch.zeros(2, 2))

    class NoStep(LightningModule):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 5, bias=False)
        def forward(self, x):
            return self.body(x)

    def plain():
        return NoStep(), torch.randn(2, 8)

    class Nothing(Net):
        def training_step(self, batch, batch_idx):
            return None

    def nothing():
        return Nothing(), {"x": torch.randn(2, 8)}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "lit.py").write_text(textwrap.dedent(NET))
    return f"{tmp_path}/lit.py"


def step_of(workload: Any, size: int = 3, optimizer: str = "sgd") -> TrainingStep:
    model = workload.build(**workload.hyper)
    batch = workload.batch(workload.hyper, size, CPU, torch.Generator().manual_seed(1))
    made = optimizer_of(optimizer, workload, model.parameters())
    return TrainingStep(model, workload.loss, made, [batch], "cpu")


def test_the_loss_is_the_training_steps_own(file: str) -> None:
    step = step_of(get(f"{file}:build"))
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    expected = ((2 * (x @ step.model.body.weight.T @ step.model.head.weight.T)) ** 2).mean().item()
    step()
    assert step.last_loss.item() == pytest.approx(expected, rel=1e-5)


def test_what_the_step_calls_is_counted_and_modules_keep_their_paths(file: str) -> None:
    workload = get(f"{file}:build")
    model = workload.build(**workload.hyper)
    inputs = workload.batch(workload.hyper, 3, CPU, None).inputs
    rows = flopledger(model, inputs, workload="lit", batch_size=3)
    total = next(row.flop for row in rows if row.phase == "forward" and row.scope == "total")
    assert total == 2 * (2 * 3 * 8 * 5 + 2 * 3 * 5 * 2), "the module is called twice in a step: 2 × (240 + 60)"
    assert [name for name, _ in model.named_modules()] == ["", "body", "head"]


def test_its_own_optimizer_is_that_of_configure_optimizers(file: str) -> None:
    step = step_of(get(f"{file}:build"), optimizer="own")
    assert isinstance(step.optimizer, torch.optim.Adagrad)
    before = step.model.body.weight.detach().clone()
    step()
    assert not torch.equal(before, step.model.body.weight), "it steps the parameters of the model that is trained"


def test_each_form_of_configure_optimizers_gives_its_one_optimizer() -> None:
    """An optimizer, a list of one, with a list of schedulers, or a dictionary, as Lightning takes them."""
    one, two = (torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1) for _ in range(2))
    for form in (one, [one], ([one], []), {"optimizer": one, "lr_scheduler": None}):
        assert configured_optimizer(SimpleNamespace(configure_optimizers=lambda form=form: form)) is one
    for form in ([one, two], [], None):
        with pytest.raises(ValueError, match="expected one optimizer from configure_optimizers, got "):
            configured_optimizer(SimpleNamespace(configure_optimizers=lambda form=form: form))


def test_what_cannot_be_trained_so_is_one_line(file: str) -> None:
    with pytest.raises(ValueError, match="steps its optimizers by hand"):
        get(f"{file}:by_hand")
    with pytest.raises(ValueError, match="expected a loss from training_step, got NoneType"):
        step_of(get(f"{file}:nothing"))()
