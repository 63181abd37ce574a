"""Laws of the fast count: random nets agree with the trace, models stay untouched, what cannot be predicted says so."""

from __future__ import annotations

import copy
import random

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from measure.fast_count.fast_count import fast_count
from results.errors import Unavailable
from tests.support.nets.fast_nets import Block, Made, agree, executed, stack


def _layer(kind, groups, bias, frozen):
    layer = {
        "conv": lambda: nn.Conv2d(8, 8, 3, 1, 1, groups=groups, bias=bias),
        "transposed": lambda: nn.ConvTranspose2d(8, 8, 1, groups=groups, bias=bias),
        "linear": lambda: nn.Linear(6, 6, bias=bias),
        "norm": lambda: nn.BatchNorm2d(8),
        "relu": lambda: nn.ReLU(),
        "block": lambda: Block(8, groups),
        "attention": lambda: Made(lambda m, x: torch.softmax(m.q(x) @ m.k(x).transpose(-1, -2), -1) @ x,
                                  q=nn.Linear(6, 6), k=nn.Linear(6, 6)),
    }[kind]()  # fmt: skip
    return layer.requires_grad_(not frozen)


LAYERS = st.builds(
    _layer,
    st.sampled_from(["conv", "transposed", "linear", "norm", "relu", "block", "attention"]),
    st.sampled_from([1, 2, 8]),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LAYERS, min_size=1, max_size=6), st.booleans(), st.booleans(), st.booleans())
def test_random_nets(layers, twice, grad_inputs, some_output):
    """The same layers may come twice (shared), inputs may need gradients, and the loss may leave the last layer out."""
    body = nn.Sequential(*layers, *(layers if twice else ()))

    def forward(m, x):
        x = x.clone()  # a leaf must not be written in place
        outputs = [x := layer(x) for layer in m.body]
        return outputs[0] if some_output else (outputs[-1], x)

    agree(Made(forward, body=body), (torch.randn(2, 8, 6, 6),), grad_inputs=grad_inputs)


def test_nothing_of_the_model_changes():
    model = stack(Block(), Block(), nn.Sequential(nn.Dropout(0.5), nn.Conv2d(8, 4, 1))).train()
    model[1].eval()
    model.calls = []
    model.register_forward_hook(lambda m, _i, o: m.calls.append(o))
    model[0].weight.grad = gradient = torch.ones_like(model[0].weight)
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(2, 3, 8, 8)
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    states = random.getstate(), torch.get_rng_state(), numpy.random.get_state()[1].copy()
    version, modes = x._version, [module.training for module in model.modules()]
    call = nn.Module.__call__
    for train in (None, True, False):
        fast_count(model, (x,), train=train)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model[0].weight.grad is gradient
    assert model[1].conv.weight.grad is None
    assert (model.calls, x._version, x.grad) == ([], version, None)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert (numpy.random.get_state()[1] == states[2]).all()
    assert nn.Module.__call__ is call


def test_a_model_on_meta_runs_itself_and_gets_its_attributes_back():
    def forward(m, x):
        m.seen.append(x)
        m.last = x
        m.count += 1
        return m.linear(x)

    with torch.device("meta"):
        model = Made(forward, linear=nn.Linear(4, 4))
    model.seen, model.count = [], 0
    found = fast_count(model, (torch.empty(3, 4),))
    assert (found.forward_flop, found.backward_flop, found.executed) == (2 * 3 * 16, 2 * 3 * 16, False)
    assert (model.seen, model.count, hasattr(model, "last")) == ([], 0, False)


def test_attributes_are_put_back_if_the_model_fails():
    def forward(m, x):
        m.leftover = 1
        raise KeyError("no such thing")

    model = Made(forward, linear=nn.Linear(4, 4, device="meta"))
    with pytest.raises(Unavailable, match="no such thing"):
        fast_count(model, (torch.empty(3, 4),))
    assert not hasattr(model, "leftover")
    assert nn.Module.__call__.__name__ == "_wrapped_call_impl"


def test_what_depends_on_values_is_unavailable_and_says_why():
    model = Made(lambda m, x: m.a(x) if x.sum() > 0 else m.b(x), a=nn.Linear(4, 4), b=nn.Linear(4, 8))
    with pytest.raises(Unavailable, match=r"neither predicted .* nor traced on fake tensors"):
        fast_count(model, (torch.randn(3, 4),))


def test_an_input_that_does_not_fit_is_unavailable_and_says_the_shapes():
    with pytest.raises(Unavailable, match=r"\[3, 5\]|3x5"):
        fast_count(nn.Sequential(nn.Linear(4, 4)), (torch.randn(3, 5),))


def test_what_meta_tensors_cannot_do_is_traced_instead():
    """A NumPy constant of a shape: FakeTensor has a value for what a model itself makes, a meta tensor has not."""

    def forward(m, x):
        if x.is_meta:
            raise NotImplementedError("not on meta")
        return m.linear(x)

    model = Made(forward, linear=nn.Linear(4, 4))
    found = fast_count(model, (torch.randn(3, 4),), rows=True)
    assert (found.executed, found.forward_flop, found.backward_flop) == (True, 96, 96)
    assert found.notes == ("counted by the executed trace: NotImplementedError: not on meta",)
    assert [(row.phase, row.module, row.flop) for row in found.rows] == [
        ("forward", "linear", 96),
        ("backward", "linear", 96),
    ]


def test_tensors_that_a_model_makes_elsewhere_join_in():
    def forward(m, x):
        mask = torch.zeros(x.shape[-1]) + torch.arange(x.shape[-1])
        return m.linear(x * mask + torch.tensor(2.0)) if int(torch.tensor([3])) == 3 else x

    found = agree(Made(forward, linear=nn.Linear(4, 4)), (torch.randn(3, 4),))
    assert found.notes == ()


class Counting(nn.Module):
    """A block whose course depends on how often it ran, which is in no attribute of its own."""

    calls: list[int] = []

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4))

    def forward(self, x):
        CALLS.append(1)
        return self.inner(x) if len(CALLS) % 2 else self.inner(self.inner(x))


CALLS: list[int] = []


def test_a_block_that_works_on_a_global_is_run_each_time():
    CALLS.clear()
    found = fast_count(nn.Sequential(*(Counting() for _ in range(4))), (torch.randn(3, 4),))
    assert found.forward_flop == (1 + 2 + 1 + 2) * 96


class Random(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4))

    def forward(self, x):
        return self.inner(x) if random.random() < 0.5 else x + 1


def test_a_course_by_random_numbers_is_run_each_time_and_noted():
    random.seed(3)
    drawn = [random.random() < 0.5 for _ in range(20)]
    random.seed(3)
    found = fast_count(nn.Sequential(*(Random() for _ in range(20))), (torch.randn(3, 4),))
    assert found.replayed == 0
    assert "random numbers" in found.notes[0]
    assert found.forward_flop % 96 == 0
    assert 0 < found.forward_flop < 20 * 96 or all(drawn)


def test_a_hook_on_one_of_two_blocks_is_seen():
    """The hook of the second block runs its linear layer once more: one product more than the first has."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(3)))
    model[1].register_forward_hook(lambda m, _inputs, out: nn.functional.linear(out, m[0].weight))
    found = agree(model, (torch.randn(3, 4),), by_module=False)
    assert found.forward_flop == 4 * 96


def test_a_forward_of_ones_own_on_one_of_two_blocks_is_seen():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(3)))
    layer = model[2]
    layer.forward = lambda x: layer[0](layer[0](x))
    assert agree(model, (torch.randn(3, 4),), by_module=False).forward_flop == 4 * 96


def test_alike_blocks_with_inputs_of_two_dtypes():
    def forward(m, x):
        a = m.blocks[0](x)
        return a, m.blocks[1](x.double())

    blocks = nn.ModuleList(
        Made(
            lambda m, x: x @ torch.empty(4, 4, dtype=x.dtype, device=x.device) @ m.w.weight.to(x.dtype),
            w=nn.Linear(4, 4),
        )
        for _ in range(2)
    )
    agree(Made(forward, blocks=blocks), (torch.randn(3, 4),))


def test_the_loss_may_be_of_some_outputs():
    model = Made(lambda m, x: {"main": m.a(x), "aside": m.b(x)}, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    found = agree(model, (torch.randn(3, 4),), loss_of=lambda out: out["main"])
    assert (found.forward_flop, found.backward_flop) == (2 * 96, 96)


def test_keyword_arguments():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, *, scale):
            return self.linear(x) @ scale

    assert agree(Two(), (torch.randn(3, 4),), kwargs={"scale": torch.randn(4, 2)}).forward_flop == 96 + 2 * 3 * 4 * 2


def test_strangers_are_listed():
    @torch.library.custom_op("flopledger_fast::tripled", mutates_args=())
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @tripled.register_fake
    def _(x):
        return torch.empty_like(x)

    blocks = (Made(lambda m, x: m.linear(tripled(x.detach())), linear=nn.Linear(4, 4)) for _ in range(3))
    model = nn.Sequential(*blocks)
    found = fast_count(model, (torch.randn(3, 4),))
    assert found.not_understood == {"flopledger_fast::tripled".replace("::", "."): 3}
    assert executed(model, (torch.randn(3, 4),))[2] == found.not_understood
