"""Law, definition: each operator of ATen is counted, free, made of others, or unsupported with a reason."""

import pytest
import torch
from torch import nn

import flopledger
from analysis.operators import registry
from measure.operations.schemas import is_composite
from tests.support.nets.small_steps import Calls

OVERLOADS = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]


def _row(name: str) -> str:
    bare, _, overload = name.removeprefix("aten::").partition(".")
    rule = registry.rule_of(f"aten.{bare}")
    if rule is not None:
        return rule.bucket
    if reason := registry.UNSUPPORTED.get(f"aten.{bare}"):
        return reason
    operator = getattr(getattr(torch.ops.aten, bare), overload or "default")
    return "made of others" if is_composite(operator) else ""


def test_every_dispatchable_overload_has_a_row():
    assert len(OVERLOADS) > 3000
    assert [name for name in OVERLOADS if not _row(name)] == []


def test_what_has_a_reason_has_no_rule():
    assert [name for name in registry.UNSUPPORTED if registry.rule_of(name) is not None] == []


@pytest.mark.parametrize(
    ("function", "products"),
    [
        (lambda y: torch.linalg.multi_dot([y, y.t(), y]), 2 * (4 * 8 * 4 + 4 * 4 * 8)),
        (lambda y: torch.corrcoef(y), 2 * 4 * 8 * 4),
        (lambda y: torch.matrix_power(y[:4, :4], 3), 2 * 2 * 4**3),
        (lambda y: torch.cosine_similarity(y, y), 0),
    ],
    ids=["multi_dot", "corrcoef", "matrix_power", "cosine_similarity"],
)
def test_what_stays_whole_without_gradients_is_what_it_is_made_of(function, products):
    def forward(m, x):
        with torch.inference_mode():
            first = function(m.layer(x))
        return m.layer(x) + first.clone().sum()

    step = flopledger.count(Calls(forward, layer=nn.Linear(8, 8, bias=False)), torch.randn(4, 8))
    assert step.not_understood == {}
    assert step.forward_flop == 2 * (2 * 4 * 8 * 8) + products


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (torch.matrix_exp, "aten.linalg_matrix_exp makes products, and how many depends on values: it has no rule"),
        (lambda w: torch.linalg.eigh(w)[0], "aten._linalg_eigh is no product, and how much it calculates depends on"),
        (torch.linalg.pinv, "aten.linalg_pinv makes products, and how many depends on values: it has no rule"),
    ],
    ids=["matrix_exp", "eigh", "pinv"],
)
def test_an_operator_without_a_rule_says_why(function, said):
    step = flopledger.count(
        Calls(lambda m, x: function(m.layer.weight).sum() + x, layer=nn.Linear(8, 8)), torch.randn(4, 8)
    )
    assert step.forward_flop is None
    assert any(note.startswith(said) for note in step.notes)


ALGEBRA = {
    "polygamma": (lambda w: torch.polygamma(1, w.abs() + 1), 0),
    "segment_reduce": (lambda w: torch.segment_reduce(w, "sum", lengths=torch.tensor([3, 5])), 0),
    "pdist": (torch.pdist, 0),
    "unique_consecutive": (lambda w: torch.unique_consecutive(w.detach()), 0),
    "histogram": (lambda w: torch.histogram(w.detach(), 4)[0], 0),
    "geqrf": (lambda w: torch.geqrf(w.detach())[0], 0),
    "cholesky_solve": (
        lambda w: torch.cholesky_solve(w, torch.linalg.cholesky(w @ w.t() + 9 * torch.eye(8))), 2 * 8**3
    ),
    "int4": (
        lambda w: torch.ops.aten._weight_int4pack_mm_for_cpu(
            torch.ones(3, 32, dtype=torch.bfloat16), torch.zeros(32, 16, dtype=torch.uint8), 32,
            torch.ones(1, 32, 2, dtype=torch.bfloat16),
        ), 2 * 3 * 32 * 32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALGEBRA)
def test_operators_that_had_no_rule(name):
    function, forward = ALGEBRA[name]

    model = Calls(lambda m, x: function(m.weight).sum() + m.weight.sum() + x, weight=nn.Parameter(torch.randn(8, 8)))
    step = flopledger.count(model, torch.randn(8, 8))
    assert (step.forward_flop, step.not_understood) == (forward, {})
