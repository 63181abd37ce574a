"""Definition, law, injected fault: count, footprint and register from Python, by numbers derived here."""

from dataclasses import dataclass

import pytest
import torch

import flopledger
from analysis.operators import registry
from measure.operations import model_trace
from results.errors import Unavailable
from tests.support.nets.small_steps import Calls


def _layer():
    return torch.nn.Linear(8, 4)


def test_a_layer_costs_its_multiply_adds_twice_and_its_bias_apart():
    found = flopledger.count(_layer(), torch.randn(2, 8))
    assert (found.forward_flop, found.backward_flop) == (2 * 2 * 8 * 4, 2 * 2 * 8 * 4)
    assert found.model_flop == 256
    assert found.recompute_flop == 0
    assert found.optimizer_flop is None
    assert found.not_understood == {}
    assert sum(row.model_flop for row in found.operations) == 256


@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.SGD, lambda p: torch.optim.SGD(p, lr=0.1), "made"],
    ids=["class", "function", "made"],
)
def test_the_optimizers_step_is_counted_apart(optimizer):
    layer = _layer()
    if optimizer == "made":
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    found = flopledger.count(layer, torch.randn(2, 8), optimizer=optimizer)
    assert found.optimizer_flop == 2 * (8 * 4 + 4)  # p -= lr · g
    assert found.model_flop == 256


def test_the_count_leaves_the_model_alone():
    import torchvision

    model = torchvision.models.resnet18()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = torch.randn(2, 3, 64, 64)
    flopledger.count(model, images)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@torch.library.custom_op("step_test::product", mutates_args=())
def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


_product.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))


@pytest.fixture
def forgotten():
    yield
    registry._ADDED.pop("step_test.product", None)


@pytest.mark.usefixtures("forgotten")
def test_an_operation_of_ones_own_counts_once_it_has_a_formula():
    def forward(m, x):
        return m.body(x).sum() + _product(m.body(x).detach(), m.weight.detach()).sum()

    model, x = Calls(forward, body=_layer(), weight=torch.nn.Parameter(torch.randn(4, 3))), torch.randn(2, 8)
    before = flopledger.count(model, x)
    assert (before.forward_flop, before.model_flop) == (None, None)
    assert before.at_least_flop["forward"] == 2 * 128
    assert before.not_understood == {"step_test.product": 1}
    line = 'flopledger.register("step_test::product", lambda *inputs, out: FLOP)'
    assert f"step_test.product has no rule; one is given by {line}" in before.notes
    unknown = [each for each in before.operations if each.model_flop is None]
    assert [(each.phase, each.other_flop, each.calls) for each in unknown] == [("forward", None, 1)]
    assert sum(each.model_flop or 0 for each in before.operations if each.phase == "forward") == 2 * 128
    flopledger.register("step_test::product", lambda a, b, out: 2 * a[0] * a[1] * out[1])
    product = 2 * 2 * 4 * 3
    assert flopledger.count(model, x).forward_flop == 2 * 128 + product
    flopledger.register("step_test::product", 0, kind="elementwise")
    assert flopledger.count(model, x).forward_flop == 2 * 128


BAD = {
    "name": (("product", 0), {}, "expected an operation as 'namespace::name', got 'product'"),
    "kind": (("a::b", 0), {"kind": "matmull"}, "expected a kind of operation, got 'matmull'"),
    "formula": (("a::b", -1), {}, "expected a function of sizes or a number of FLOP from 0 as formula, got -1"),
    "known": (("aten::mm", 0), {}, "expected an operation without a rule, got 'aten::mm', which is a matmul here"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_rule_that_cannot_be_right_is_refused(case):
    arguments, options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        flopledger.register(*arguments, **options)


class Values(torch.nn.Module):
    """Its course depends on a value: rows that are positive alone reach the second layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.second(self.first(x)[x[:, 0] > 0])


def test_a_step_that_depends_on_values_runs_on_a_copy_with_values():
    model, x = Values(), torch.randn(6, 8)
    x[:, 0] = torch.tensor([1.0, 1, 1, 1, -1, -1])
    drawn = torch.get_rng_state()
    found = flopledger.count(model, x)
    product = 2 * 8 * 8  # of a row
    assert found.forward_flop == (6 + 4) * product
    assert found.backward_flop == (6 + 2 * 4) * product  # the input asks for no gradient
    assert found.notes[0].startswith("counted on real tensors: the size of a tensor depends on values")
    assert model.calls == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_step_that_depends_on_values_and_has_none_says_so():
    with torch.device("meta"):
        model = Values()
    with pytest.raises(Unavailable, match=r"traced on fake tensors: .*; the model or its inputs have no values"):
        flopledger.count(model, torch.randn(6, 8))


def test_a_copy_with_values_that_memory_does_not_hold_is_refused(monkeypatch):
    monkeypatch.setattr(model_trace, "free_bytes", lambda: 1000)
    with pytest.raises(Unavailable, match=r"a copy with values and its gradients need 0\.0 GB, and 0\.0 GB are free"):
        flopledger.count(Values(), torch.randn(6, 8))


def test_ceilings_are_rows_of_this_device():
    rows = flopledger.ceilings("cpu", budget_s=1.0)
    assert any(row.status == "ok" and row.unit == "fp32" and row.flop_per_s > 0 for row in rows)
    assert len({row.device_name for row in rows}) == 1
    with pytest.raises(ValueError, match="got fp3"):
        flopledger.ceilings("cpu", ("fp3",))


@dataclass
class _Answer:
    loss: torch.Tensor
    note: str = ""


def test_a_backward_pass_begins_at_the_fields_of_a_dataclass():
    found = flopledger.count(Calls(lambda m, x: _Answer(m.layer(x).sum()), layer=_layer()), torch.randn(2, 8))
    assert (found.forward_flop, found.backward_flop) == (128, 128)


def test_what_is_no_model_or_no_optimizer_is_named():
    with pytest.raises(ValueError, match=r"expected a torch\.nn\.Module as model, got int"):
        flopledger.count(3, torch.randn(2))
    with pytest.raises(ValueError, match="expected an optimizer, its class or a function that makes one, got str"):
        flopledger.count(_layer(), torch.randn(2, 8), optimizer="sgd")


def test_a_model_that_gives_no_tensor_is_counted_with_loss_of_alone():
    """Without it, forward alone would stand as the whole step."""
    model = Calls(lambda m, x: [{"loss": None, "words": "x"}] if m.layer(x).ndim else None, layer=_layer())
    with pytest.raises(
        Unavailable, match=r"expected outputs of the model that are or hold tensors, got list: pass loss_of="
    ):
        flopledger.count(model, torch.randn(2, 8))
    frozen = model.requires_grad_(False)
    assert flopledger.count(frozen, torch.randn(2, 8)).backward_flop == 0
