"""Layers that the fast count passes through: where their outputs are the layers' own, and where it must not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from measure.fast_count import dispatch_mode, skipped_layers
from measure.fast_count.dispatch_mode import PredictMode, Tape
from measure.fast_count.fast_count import clear_cache, fast_count
from results.errors import Unavailable
from tests.measure.fast_count.test_fast_outputs import DTYPES, FORMS, described
from tests.support.nets.fast_nets import Block, Made, agree, stack


def _batch_norm(x, **options):
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[x.dim()]
    return kind(x.shape[1], dtype=x.dtype, device="meta", **options)


CALLS = {
    "relu": lambda x: [(x,), (x, True)],
    "silu": lambda x: [(x,), (x, True)],
    "hardswish": lambda x: [(x,), (x, True)],
    "hardsigmoid": lambda x: [(x,), (x, True)],
    "hardtanh": lambda x: [(x,), (x, 0.0, 6.0, True)],
    "gelu": lambda x: [(x,)],
    "layer_norm": lambda x: [
        (x, x.shape[-1:]),
        (x, tuple(x.shape[2:]), x.new_empty(x.shape[2:])),
        (x, x.shape[-1:], x.new_empty(x.shape[-1:]), x.new_empty(x.shape[-1:])),
    ],
    "forward": lambda x: (
        [(_batch_norm(x), x), (_batch_norm(x, affine=False), x), (_batch_norm(x).eval(), x)]
        + [(_batch_norm(x, track_running_stats=False), x)]
    ),
}


@pytest.mark.parametrize(
    ("where", "name", "passing"), skipped_layers.PASSED, ids=lambda value: value if type(value) is str else ""
)
def test_an_output_is_the_layers_own(where, name, passing):
    """Sizes, strides, dtype, whether it needs a gradient; in place, the very tensor, and written."""
    original, known = getattr(where, name), 0
    for dtype in DTYPES:
        for form in FORMS.values():
            for needs in (False, True) if dtype.is_floating_point else (False,):
                for number in range(len(_calls(name, form(dtype)))):
                    known += _check(original, passing, lambda n=number: _calls(name, _begun(form, dtype, needs))[n])  # noqa: B023
    assert known > 0


def _calls(name, x):
    return CALLS[name](x) if x.dtype.is_floating_point or name not in ("forward", "layer_norm") else []


def _begun(form, dtype, needs):
    x = form(dtype)
    return x.detach().requires_grad_()[...].mul(1) if needs else x


def _check(original, passing, make):
    args, mode = make(), PredictMode(Tape())
    given = next(arg for arg in args if isinstance(arg, torch.Tensor))
    version = given._version
    with mode:
        out = passing(lambda *_, **__: None, mode)(*args)
    if out is None:
        return 0
    again = make()
    expected = original(*again)
    assert described(out) == described(expected)
    assert out.requires_grad == expected.requires_grad
    kept = next(arg for arg in again if isinstance(arg, torch.Tensor))
    assert (out is given, given._version != version) == (expected is kept, kept._version != 0)
    assert mode.left_out
    return 1


def test_nothing_of_a_block_is_dispatched_but_its_products_and_sums():
    clear_cache()
    with torch.device("meta"):
        model = nn.Sequential(stack(Block()), nn.Flatten(), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 1))
    fast_count(model, (torch.empty(2, 3, 8, 8),))
    names = {str(func) for func in dispatch_mode._KNOWN[torch.float32]}
    clear_cache()
    assert "aten.convolution.default" in names
    assert not [name for name in names if any(part in name for part in ("norm", "relu", "gelu"))]


def _linear(width=8):
    return nn.Linear(8, width)


def _checkpointed(m, x):
    return m.last(checkpoint(m.body, m.first(x), use_reentrant=False))


def _force(m, x):
    """The gradient of an activation of a product, taken by hand: nothing is dispatched before it is done."""
    y = m.first(x)
    (gradient,) = torch.autograd.grad(F.gelu(y), y, m.second(x), create_graph=True)
    return m.third(gradient)


def _tangent(m, x):
    with forward_ad.dual_level():
        out = F.gelu(m.first(forward_ad.make_dual(x, torch.ones_like(x))))
        return forward_ad.unpack_dual(out).tangent


def _given_weights(m, x):
    """The first block gets a weight that is a leaf of its own, the second one that a product made."""
    leaf = torch.ones(8, device=x.device).requires_grad_()
    return m.blocks[1](m.blocks[0](x, leaf), m.scale(x).mean(0))


def _blocks_with_weights():
    return nn.ModuleList(
        Made(lambda m, x, w: F.layer_norm(m.inner(x), (8,), w), inner=nn.Sequential(_linear())) for _ in range(2)
    )


NOT_PASSED = {
    # products of 4 × 8 × 8, forward, backward, computed again; the input needs no gradient
    "a weight that a product made": (
        lambda: Made(lambda m, x: F.layer_norm(x, (8,), m.scale(x).mean(0)), scale=_linear()),
        (1, 1, 0),
    ),
    "a weight of batch_norm that a product made": (
        lambda: Made(
            lambda m, x: torch.func.functional_call(m.norm, {"weight": m.scale(x).mean(0)}, (x,)),
            scale=_linear(), norm=nn.BatchNorm1d(8),
        ),
        (1, 1, 0),
    ),
    "weights that are given to blocks": (
        lambda: Made(_given_weights, blocks=_blocks_with_weights(), scale=_linear()),
        (3, 1 + 2 + 1, 0),
    ),
    # the last product of the checkpoint is computed again, because its normalisation kept what it made
    "a checkpoint that ends in a normalisation": (
        lambda: Made(
            _checkpointed, first=_linear(), last=_linear(),
            body=nn.Sequential(_linear(), nn.ReLU(), _linear(), nn.BatchNorm1d(8)),
        ),
        (4, 1 + 2 + 2 + 2, 2),
    ),
    # the activation's gradient depends on the first product: its weight has a gradient, and the second's and third's
    "a gradient inside of the forward pass": (
        lambda: Made(_force, first=_linear(), second=_linear(), third=_linear()),
        (3, 1 + 1 + 2, 0),
    ),
    "a norm by itself trains": (
        lambda: Made(lambda m, x: m.second(m.norm(x)), norm=nn.BatchNorm1d(8), second=_linear()),
        (1, 2, 0),
    ),
    "a norm that is frozen": (
        lambda: Made(lambda m, x: m.second(m.norm(x)), norm=nn.BatchNorm1d(8).requires_grad_(False), second=_linear()),
        (1, 1, 0),
    ),
    "a norm without gradients": (
        lambda: Made(lambda m, x: m.second(torch.no_grad()(m.norm)(m.first(x))), norm=nn.LayerNorm(8), first=_linear(),
                     second=_linear()),
        (2, 1, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_PASSED)
def test_equal_to_the_executed_trace_and_to_counts_by_hand(name):
    make, products = NOT_PASSED[name]
    torch.manual_seed(0)
    found = agree(make(), (torch.randn(4, 8),), by_module=False)
    assert (found.forward_flop, found.backward_flop, found.recompute_flop) == tuple(n * 2 * 4 * 64 for n in products)


def test_a_pass_that_is_taken_again_begins_where_the_first_did():
    """The engine runs after an activation was passed through: again without. A second course would have two products
    more than 4 × 8 × 8 forward, and its weight's."""

    def forward(m, x):
        m.calls += 1
        y = F.relu(m.first(x))
        torch.autograd.grad(y.sum(), y)
        return m.first(m.first(y)) if m.calls > 1 else y

    model = Made(forward, first=_linear())
    model.calls = 0
    found = fast_count(model.to("meta"), (torch.randn(4, 8),))
    assert (found.forward_flop, found.backward_flop, found.executed, model.calls) == (512, 512, False, 0)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # dual numbers load them
def test_a_derivative_forwards_is_as_without_passing():
    model = Made(_tangent, first=_linear())
    found = fast_count(model, (torch.randn(4, 8),))
    assert not found.executed, found.notes
    plain = fast_count(model, (torch.randn(4, 8),), reuse=False)
    assert (found.forward_flop, found.backward_flop) == (plain.forward_flop, plain.backward_flop)
    assert found.backward_flop > 512  # the activation's derivative depends on the product, too


class _Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class _Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kind", "name"), [(_Seen, "batch_norm"), (_Dispatched, "native_batch_norm.default")])
def test_modes_of_the_model_see_every_layer(kind, name):
    seen = []

    def forward(m, x):
        with kind() as watching:
            x = m.norm(x)
        seen.append(watching.names.count(name))
        return m.last(x)

    fast_count(Made(forward, norm=nn.BatchNorm1d(8), last=_linear()), (torch.randn(4, 8),))
    assert seen == [1]


def test_a_normalisation_with_a_weight_by_rule_runs_the_rule():
    """The weight of each call is a product of 8 × 8 × 8 by a diagonal; its own gradient is another."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8, bias=False)

        def forward(self, weight):
            return self.inner(weight)

    norm = nn.BatchNorm1d(8)
    nn.utils.parametrize.register_parametrization(norm, "weight", Scaled())
    found = agree(nn.Sequential(_linear(), norm), (torch.randn(4, 8),), by_module=False)
    assert found.forward_flop > 2 * 4 * 64


@pytest.mark.parametrize(("sizes", "said"), [((1, 8), "more than 1 value per channel"), ((4, 6), "running_mean")])
def test_what_a_normalisation_refuses_is_refused(sizes, said):
    with pytest.raises(Unavailable, match=said):
        fast_count(nn.Sequential(nn.BatchNorm1d(8), nn.Flatten()), (torch.randn(sizes),), train=True)


def test_what_must_not_be_written_in_place_is_not():
    with pytest.raises(Unavailable, match="leaf"):
        fast_count(nn.Sequential(nn.ReLU(inplace=True)), (torch.randn(4, 8),), grad_inputs=True)
    model = Made(lambda m, x: F.relu(m.first(x).split(2)[0], True), first=_linear())
    with pytest.raises(Unavailable, match=r"predicted \(RuntimeError: Output 0 of \w+ is a view and is being modified"):
        fast_count(model, (torch.randn(4, 8),))


MUTATIONS = {
    "weights lead to nothing": ("_are_of", lambda size, x, *_: True, "a weight that a product made"),
    "weights of others are leaves": ("_Parameter", torch.Tensor, "weights that are given to blocks"),
    "hooks on saved tensors do not matter": ("_top_hooks", lambda _: None, "a checkpoint that ends in a normalisation"),
    "what trains in a norm does not matter": ("_grad", lambda: False, "a norm by itself trains"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_spoilt_rule_is_noticed(name, monkeypatch):
    part, spoilt, net = MUTATIONS[name]
    monkeypatch.setattr(skipped_layers, part, spoilt)
    with pytest.raises(AssertionError):
        test_equal_to_the_executed_trace_and_to_counts_by_hand(net)


def test_an_engine_that_nothing_shows_is_noticed(monkeypatch):
    monkeypatch.setattr(PredictMode, "engine_runs", lambda self: None)
    with pytest.raises(AssertionError):
        test_equal_to_the_executed_trace_and_to_counts_by_hand("a gradient inside of the forward pass")
