"""Definition, injected fault: counts by hand of steps that need values, of loops, sparse products, compiled code.

Each expected pair is (forward, backward) in FLOP, derived beside it; inputs need no gradient.
"""

import logging

import pytest
import torch
import torch.nn.functional as F
from functorch.experimental.control_flow import map as map_over
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import flopledger
from analysis.operators import registry
from results.errors import Unavailable
from tests.support.nets.small_steps import Calls


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no such gradient")


pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta state")

ROW = 2 * 8 * 8
"""A row through a product of 8 × 8."""

S = (torch.arange(120).reshape(12, 10) % 3 == 0).float()
STORED = 40
"""Every third of 120."""


def made(function):
    """A module around a function of itself and its inputs, with three layers of 8 × 8 and a matrix of 10 × 6."""
    layers = {name: nn.Linear(8, 8, bias=False) for name in "abc"}
    return Calls(function, right=nn.Parameter(torch.randn(10, 6)), **layers)


def count(function, *inputs):
    torch.manual_seed(0)
    step = flopledger.count(made(function), inputs or torch.ones(6, 8))
    assert step.not_understood == {}
    return step.forward_flop, step.backward_flop


def _packed(m, x):
    packed = nn.utils.rnn.pack_padded_sequence(m.a(x), torch.tensor([3, 2, 1]))
    return m.b(packed.data)


def _experts(m, x):
    """Rows go to b, c or, the last two, to both."""
    chosen = torch.tensor([0, 0, 1, 1, 2, 2])
    out = m.a(x)
    for number, layer in enumerate((m.b, m.c)):
        rows = (torch.tensor([chosen_by in (number, 2) for chosen_by in chosen])).nonzero().flatten()
        out = out.index_add(0, rows, layer(x[rows]))
    return out


VALUES = {
    # 6 rows and 3 + 2 + 1 of them that are packed; b's input needs a gradient
    "packed sequences": (lambda: count(_packed, torch.ones(3, 3, 8)), ((9 + 6) * ROW, (9 + 12) * ROW)),
    # each expert has 4 rows
    "experts by nonzero": (lambda: count(_experts), ((6 + 8) * ROW, (6 + 8) * ROW)),
    "rows by a mask": (lambda: count(lambda m, x: m.a(x[torch.tensor([1, 1, 0, 1, 0, 0]).bool()])), (3 * ROW, 3 * ROW)),
    "a scale by item()": (lambda: count(lambda m, x: m.a(x) / x.abs().max().item()), (6 * ROW, 6 * ROW)),
    "repetition by a tensor": (
        lambda: count(lambda m, x, n: m.a(x.repeat_interleave(n, 0)), torch.ones(3, 8), torch.tensor([1, 2, 4])),
        (7 * ROW, 7 * ROW),
    ),
    # one row of each kind
    "unique": (lambda: count(lambda m, x: m.a(x[torch.unique(x[:, 0].long())])), (ROW, ROW)),
    # 3 steps of 6 rows
    "a loop until a value": (lambda: count(_until), (18 * ROW, 18 * ROW + 12 * ROW)),
}


def _until(m, x):
    steps = torch.tensor(0)
    while steps.item() < 3:
        x, steps = m.a(x), steps + 1
    return x


@pytest.mark.parametrize("name", VALUES)
def test_a_course_that_depends_on_values_is_counted_on_real_tensors(name):
    run, expected = VALUES[name]
    assert run() == expected


def _loops(m, x, gradient=True):
    with torch.set_grad_enabled(gradient):
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, m.a(y)), (torch.tensor(0), x))[1]


def _cond(m, x, predicate):
    return torch.cond(predicate(x), lambda y: m.a(y), lambda y: m.b(m.c(y)), (x,))


OPERATORS = {
    "cond, taken": (lambda: count(lambda m, x: _cond(m, x, lambda x: x.sum() > 0)), (6 * ROW, 6 * ROW)),
    # two products, of which one has an input that needs a gradient
    "cond, not taken": (lambda: count(lambda m, x: _cond(m, x, lambda x: x.sum() < 0)), (12 * ROW, 18 * ROW)),
    "cond of a number": (lambda: count(lambda m, x: _cond(m, x, lambda x: x.shape[0] > 3)), (6 * ROW, 6 * ROW)),
    "cond in cond": (
        lambda: count(
            lambda m, x: torch.cond(
                x.sum() > 0,
                lambda y: torch.cond(y.sum() > 1e9, lambda z: z.sin(), lambda z: m.a(z), (y,)),
                lambda y: y.cos(),
                (x,),
            )
        ),
        (6 * ROW, 6 * ROW),
    ),
    # 6 steps of two products of a row. a: its last product has no gradient, and its first no gradient of the input
    "scan": (
        lambda: count(lambda m, x: scan(lambda h, e: (m.a(h) + e, m.b(h)), x[0].clone(), x)[1]),
        (12 * ROW, (5 + 4 + 6 + 5) * ROW),
    ),
    "map": (lambda: count(lambda m, x: map_over(lambda row, w: row @ w, x, m.a.weight)), (6 * ROW, 6 * ROW)),
    "while_loop": (lambda: count(_loops), (18 * ROW, (18 + 12) * ROW)),
    "while_loop without gradients": (lambda: count(lambda m, x: m.b(_loops(m, x, False))), (24 * ROW, 6 * ROW)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_bodies_of_operators_count_as_often_as_they_run(name):
    run, expected = OPERATORS[name]
    assert run() == expected


SPARSE = {
    "COO": (S.to_sparse(), lambda m, a: a @ m.right, 6),
    "CSR": ("csr", lambda m, a: a @ m.right, 6),
    "CSC": ("csc", lambda m, a: a @ m.right, 6),
    "torch.sparse.mm": (S.to_sparse(), lambda m, a: torch.sparse.mm(a, m.right), 6),
    "a sum": (S.to_sparse(), lambda m, a: torch.addmm(torch.zeros(12, 6), a, m.right), 6),
    "a vector": (S.to_sparse(), lambda m, a: a @ m.right[:, 0], 1),
    "on the right": (S.to_sparse(), lambda m, a: m.right.t() @ a.t(), 6),
    "a batch of two": (
        torch.stack([S, S]).to_sparse(), lambda m, a: torch.bmm(a, torch.stack([m.right, m.right])), 2 * 6
    ),
    "twice the same place": (
        torch.sparse_coo_tensor(
            torch.zeros(2, STORED, dtype=torch.long), torch.ones(STORED), (12, 10), check_invariants=True
        ),
        lambda m, a: a @ m.right, 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_product_is_two_for_each_stored_value_and_column(name):
    """Its one gradient is as much again."""
    sparse, function, columns = SPARSE[name]
    if isinstance(sparse, str):
        sparse = S.to_sparse_csr() if sparse == "csr" else S.to_sparse_csc()
    assert count(lambda m, _: function(m, sparse)) == (2 * STORED * columns, 2 * STORED * columns)


def test_of_two_sparse_operands_there_is_no_total():
    step = flopledger.count(
        made(lambda m, _: (S.to_sparse() @ S.t().to_sparse()).to_dense() + m.right.sum()), torch.ones(1)
    )
    assert (step.forward_flop, dict(step.not_understood)) == (None, {"sparse.mm_of_sparse": 1})


@torch.library.custom_op("values_test::gathered", mutates_args=())
def _gathered(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.to_dense() @ b


def test_a_registered_rule_is_handed_the_number_of_stored_values():
    flopledger.register("values_test::gathered", lambda a, b, out, stored: 2 * stored["a"] * b[1])
    try:
        few = S.to_sparse_csr()
        assert count(lambda m, x: m.a(x) + _gathered(few, m.right.detach()).sum()) == (
            6 * ROW + 2 * STORED * 6, 6 * ROW
        )  # fmt: skip
    finally:
        registry._ADDED.pop("values_test.gathered")


@pytest.mark.parametrize("last", [lambda y: y, torch.tanh], ids=["alone", "tanh"])
def test_an_operator_that_refuses_the_gradient_of_a_sum_is_counted(last, caplog):
    """Rows in three groups, a product of 16 × 16 each."""

    def forward(m, x):
        return last(F.grouped_mm(x.bfloat16(), m.weight, offs=torch.tensor([3, 4, 8], dtype=torch.int32)))

    model = Calls(forward, weight=nn.Parameter(torch.randn(3, 16, 16, dtype=torch.bfloat16)))
    with caplog.at_level(logging.ERROR):
        step = flopledger.count(model, torch.ones(8, 16))
    assert (step.forward_flop, step.backward_flop) == (2 * 8 * 16 * 16, 2 * 8 * 16 * 16)
    assert not caplog.records


# --- compiled models, and operators that had no rule ---

PASS = 2 * 4 * 16 * 16
"""Model FLOP of a pass of 4 rows through a layer of 16 × 16."""


def linear() -> nn.Module:
    return nn.Linear(16, 16, bias=False)


def compiled() -> nn.Module:
    return torch.compile(linear())  # type: ignore[return-value]


def compiled_in_place() -> nn.Module:
    layer = linear()
    layer.compile()
    return layer


class Method(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    @torch.compile
    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


@pytest.mark.filterwarnings("ignore:Using .torch.compile")  # while torch looks at hooks of all modules
@pytest.mark.parametrize("make", [compiled, compiled_in_place, Method])
def test_a_compiled_model_or_layer_or_method_counts_as_its_code(make) -> None:
    x = torch.randn(4, 16)
    alone, inside = (flopledger.count(model, x) for model in (make(), nn.Sequential(linear(), make())))
    assert (alone.forward_flop, alone.backward_flop) == (PASS, PASS)
    assert (inside.forward_flop, inside.backward_flop) == (2 * PASS, 3 * PASS)


@pytest.mark.parametrize("gradients", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("padding", [0, 2])
def test_a_convolution_with_time_first(padding: int, gradients: tuple[bool, bool]) -> None:
    """5 steps of 2 samples by windows of 3: 3 outputs, 7 with the padding, each of 7 channels from 3 × 10 numbers. Each
    gradient that is needed is as much, though the kernel computes both, and in pieces that leave the padding out."""
    weight, bias = nn.Parameter(torch.randn(3, 10, 7), gradients[1]), nn.Parameter(torch.zeros(7))
    model = Calls(lambda m, x: torch.conv_tbc(x, m.weight, m.bias, padding), weight=weight, bias=bias)
    x = torch.randn(5, 2, 10, requires_grad=gradients[0])
    product = 2 * ((3 + 2 * padding) * 2 * 7) * (3 * 10)
    step = flopledger.count(model, x)
    assert (step.forward_flop, step.backward_flop) == (product, sum(gradients) * product)


def test_a_backward_pass_that_fails_names_what_the_loss_is_made_of():
    with pytest.raises(Unavailable, match="no such gradient; the loss is the sum of all outputs: pass loss_of="):
        count(lambda m, x: Refuses.apply(m.a(x)))


def test_an_operator_whose_course_is_not_known_is_named():
    with torch.device("meta"):
        model = made(lambda m, x: _cond(m, x, lambda x: x.sum() > 0))
    with pytest.raises(Unavailable, match="the branch or end of cond depends on a value; the model or its inputs have"):
        flopledger.count(model, torch.ones(6, 8))
