"""Small nets, one for each rule of the fast count, and how it is compared with the executed trace."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from analysis.operators import registry
from measure.fast_count.fast_count import FastCount, fast_count
from measure.fast_count.reference import trace_model


class Made(nn.Module):
    """A module around a function of itself and its inputs."""

    def __init__(self, function: Callable[..., Any], **children: Any) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


class Block(nn.Module):
    """Convolution, normalisation, activation, and the input again."""

    def __init__(self, width: int = 8, groups: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn(self.conv(x)))
        return y + x if y.shape == x.shape else y


def stack(*blocks: nn.Module) -> nn.Sequential:
    """A stem and some blocks."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), *blocks)


def executed(model: nn.Module, inputs: tuple[Any, ...], **options: Any) -> tuple[dict[str, int], Counter[Any], Any]:
    """(model FLOP by phase, by phase, module and kind, what is not understood) of the executed trace."""
    settings = {"train": None, "grad_inputs": None, "loss_of": None, "kwargs": {}} | options
    operations = trace_model(model, inputs, **settings).operations
    totals: Counter[str] = Counter()
    table: Counter[Any] = Counter()
    for operation in operations:
        phase = "forward" if operation.phase == "loss" else operation.phase
        flop = int(registry.cost(operation).model_flop)
        totals[phase] += flop
        if flop:
            table[phase, operation.module, operation.kind] += flop
    return totals, table, registry.not_understood(operations)


def agree(model: nn.Module, inputs: tuple[Any, ...], *, by_module: bool = True, **options: Any) -> FastCount:
    """Predict, with and without replays, and hold both against the executed trace, in total and by module."""
    totals, table, _ = executed(model, inputs, **options)
    found = fast_count(model, inputs, rows=True, **options)
    for count in (
        found,
        fast_count(model, inputs, rows=True, reuse=False, **options),
        fast_count(model, inputs, **options),
    ):
        assert not count.executed, count.notes
        assert (count.forward_flop, count.backward_flop, count.recompute_flop) == (
            totals["forward"], totals["backward"], totals["recompute"],
        )  # fmt: skip
        if count.rows and by_module:
            assert {(r.phase, r.module, r.kind): r.flop for r in count.rows} == dict(table)
    return found


class Doubling(torch.autograd.Function):
    """x · W with a gradient of its own, which multiplies twice for x and gives none to W."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return (x @ weight) * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        return (gradient @ weight.t()) + (gradient @ weight.t()), None, None


def _frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def _shared() -> nn.Module:
    layer = nn.Linear(8, 8)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(8, 8), layer)


def _attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), **options).squeeze(1)


def _own_attention(m: Any, x: Any) -> Any:
    q, k, v = m.qkv(x).chunk(3, -1)
    return m.out(torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v)


def _in_part(m: Any, x: Any) -> Any:
    y = m.first(x)
    y[:, :2] = m.second(x)[:, :2]  # CopySlices
    return m.third(y)


def _written(m: Any, x: Any) -> Any:
    y = torch.zeros(x.shape[0], 8, device=x.device)
    return y.addmm_(m.first(x), m.second.weight)


def _inner_gradient(m: Any, x: Any) -> Any:
    x = x.requires_grad_()
    energy = m.first(x).tanh().sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    return m.second(force)


def _checkpointed(reentrant: bool) -> Callable[..., Any]:
    return lambda m, x: m.last(checkpoint(m.body, m.first(x), use_reentrant=reentrant))


def _body() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


LINEAR = (4, 8)
IMAGE = (2, 3, 8, 8)
TOKENS = (2, 5, 16)


def _linear(width: int = 8, bias: bool = True) -> nn.Linear:
    return nn.Linear(8, width, bias=bias)


NETS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "linear": (_linear, LINEAR),
    "linear on three dimensions": (lambda: nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4, bias=False)), TOKENS),
    "linear on one dimension": (lambda: nn.Sequential(_linear(), _linear()), (8,)),
    "frozen first layer": (lambda: nn.Sequential(_frozen(_linear()), _linear()), LINEAR),
    "frozen last layer": (lambda: nn.Sequential(_linear(), _frozen(_linear())), LINEAR),
    "all frozen": (lambda: _frozen(nn.Sequential(_linear(), _linear())), LINEAR),
    "only a bias trains": (lambda: _only_bias(), IMAGE),
    "a layer used three times": (_shared, LINEAR),
    "an output that reaches no loss": (
        lambda: Made(lambda m, x: (m.a(x), m.b(m.c(x)))[0], a=_linear(), b=_linear(), c=_linear()),
        LINEAR,
    ),
    "detached": (
        lambda: Made(lambda m, x: m.a(m.b(x).detach()) + m.c(x), a=_linear(), b=_linear(), c=_linear()),
        LINEAR,
    ),
    "no_grad inside": (lambda: Made(_without_gradients, a=_linear(), b=_linear()), LINEAR),
    "grouped and depthwise": (lambda: stack(nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(8, 16, 3, groups=8)), IMAGE),
    "transposed": (lambda: stack(nn.ConvTranspose2d(8, 6, 3, 2, 1, 1, groups=2), nn.Conv2d(6, 2, 1)), IMAGE),
    "convolutions of one and three dimensions": (
        lambda: Made(lambda m, x: m.b(m.a(x).unsqueeze(2)), a=nn.Conv1d(8, 4, 3), b=nn.Conv2d(4, 4, 1)),
        (2, 8, 9),
    ),
    "three dimensions": (lambda: nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.Conv3d(4, 2, 1)), (1, 2, 4, 4, 4)),
    "padding same and circular": (
        lambda: stack(nn.Conv2d(8, 8, (3, 5), padding="same"), nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular")),
        IMAGE,
    ),
    "bilinear": (lambda: Made(lambda m, x: m.b(m.a(x), x), a=_linear(), b=nn.Bilinear(8, 8, 5)), LINEAR),
    "einsum": (
        lambda: Made(lambda m, x: torch.einsum("bi,ij,bj->b", m.a(x), m.b.weight, x), a=_linear(), b=_linear()),
        LINEAR,
    ),
    "baddbmm": (
        lambda: Made(
            lambda m, x: torch.baddbmm(m.a(x), m.b(x), x.transpose(1, 2) @ x, beta=0.5),
            a=nn.Linear(16, 16),
            b=nn.Linear(16, 16),
        ),
        TOKENS,
    ),
    "mv, dot, addr, addbmm": (lambda: Made(_vectors, a=_linear(), b=_linear()), LINEAR),
    "cdist": (lambda: Made(lambda m, x: torch.cdist(m.a(x), m.b.weight), a=_linear(), b=nn.Linear(8, 40)), (30, 8)),
    "inverse": (lambda: Made(lambda m, x: torch.linalg.inv(m.a(x)) @ x, a=_linear()), (8, 8)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10)), torch.zeros(2, 5, dtype=torch.long)),
    "lstm": (
        lambda: Made(
            lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True, dropout=0.1)
        ),
        TOKENS,
    ),
    "lstm without bias, its last state": (
        lambda: Made(lambda m, x: m.head(m.rnn(x)[1][0]), rnn=nn.LSTM(16, 8, bias=False), head=_linear()),
        TOKENS,
    ),
    "lstm, first layer frozen": (lambda: _half_frozen_lstm(), TOKENS),
    "lstm with projections": (lambda: Made(_projected, rnn=nn.LSTM(16, 8, proj_size=4)), TOKENS),
    "lstm in double": (lambda: Made(lambda m, x: m.rnn(x.double())[0], rnn=nn.LSTM(16, 8).double()), TOKENS),
    "gru": (lambda: Made(lambda m, x: m.rnn(x)[0], rnn=nn.GRU(16, 8, 2, batch_first=True)), TOKENS),
    "rnn": (lambda: Made(lambda m, x: m.rnn(x)[1], rnn=nn.RNN(16, 8, bidirectional=True)), TOKENS),
    "lstm cell": (lambda: Made(lambda m, x: m.cell(x, m.cell(x))[0], cell=nn.LSTMCell(8, 8)), LINEAR),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3, enable_nested_tensor=False
        ),
        TOKENS,
    ),
    "encoder, activations first": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        ),
        TOKENS,
    ),
    "attention layer with weights": (
        lambda: Made(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(16, 4, batch_first=True)),
        TOKENS,
    ),
    "attention of one's own": (lambda: Made(_own_attention, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16)), TOKENS),
    "attention, values narrower": (
        lambda: Made(
            lambda m, x: _attention(m.q(x), m.k(x), m.v(x)),
            q=nn.Linear(16, 16),
            k=nn.Linear(16, 16),
            v=nn.Linear(16, 8),
        ),
        TOKENS,
    ),
    "causal attention": (
        lambda: Made(lambda m, x: _attention(m.q(x), m.q(x), m.q(x), is_causal=True), q=nn.Linear(16, 16)),
        TOKENS,
    ),
    "attention, only its values train": (
        lambda: Made(lambda m, x: _attention(x, x, m.v(x)), v=nn.Linear(16, 16)),
        TOKENS,
    ),
    "attention with dropout, only its values train": (
        lambda: Made(lambda m, x: _attention(x, x, m.v(x), dropout_p=0.5), v=nn.Linear(16, 16)),
        TOKENS,
    ),
    "attention with a mask that trains": (
        lambda: Made(
            lambda m, x: _attention(x, x, m.v(x), attn_mask=m.b(x)[:, None]), v=nn.Linear(16, 16), b=nn.Linear(16, 5)
        ),
        TOKENS,
    ),
    "weight norm": (
        lambda: nn.Sequential(_linear(), nn.utils.parametrizations.weight_norm(_linear()), _linear()),
        LINEAR,
    ),
    "weight norm, the old way": (lambda: nn.Sequential(_linear(), _old_weight_norm(_linear())), LINEAR),
    "spectral norm": (lambda: nn.Sequential(_linear(), nn.utils.parametrizations.spectral_norm(_linear())), LINEAR),
    "a function of one's own": (
        lambda: Made(lambda m, x: Doubling.apply(m.a(x), 2.0, m.b.weight), a=_linear(), b=_linear()),
        LINEAR,
    ),
    "written in part": (lambda: Made(_in_part, first=_linear(), second=_linear(), third=_linear()), LINEAR),
    "a product written in place": (lambda: Made(_written, first=_linear(), second=_linear()), LINEAR),
    "a gradient inside of the forward pass": (lambda: Made(_inner_gradient, first=_linear(), second=_linear()), LINEAR),
    "checkpoint": (lambda: Made(_checkpointed(False), first=_linear(), body=_body(), last=_linear()), LINEAR),
    "checkpoint, reentrant": (lambda: Made(_checkpointed(True), first=_linear(), body=_body(), last=_linear()), LINEAR),
    "blocks alike": (lambda: stack(Block(), Block(), Block(), Block()), IMAGE),
    "blocks alike, first ones frozen": (lambda: stack(_frozen(Block()), Block(), Block()), IMAGE),
    "blocks alike, all before one frozen": (lambda: _frozen_up_to(3), IMAGE),
    "blocks alike but for groups": (lambda: stack(Block(), Block(groups=2), Block(groups=2), Block()), IMAGE),
    "blocks alike but for a number": (lambda: stack(Repeated(1), Repeated(2), Repeated(1)), IMAGE),
    "a product beside the graph": (lambda: Made(_beside, a=_linear(4), b=_linear()), LINEAR),
    "blocks alike but for the stride": (lambda: stack(Block(), Block(stride=2), Block(), Block(stride=2)), IMAGE),
    "blocks alike but for what trains": (lambda: stack(Block(), _only_norm(), Block(), _only_norm()), IMAGE),
    "blocks that keep lists": (
        lambda: Made(_with_list, blocks=nn.ModuleList(Collecting(8) for _ in range(3)), head=_linear()),
        LINEAR,
    ),
    "blocks that fill a list each": (
        lambda: Made(_with_lists, blocks=nn.ModuleList(Collecting(8) for _ in range(3)), head=_linear()),
        LINEAR,
    ),
    "blocks with two inputs and two outputs": (
        lambda: Made(_crossed, first=_linear(), blocks=nn.ModuleList(Crossing(8) for _ in range(4))),
        LINEAR,
    ),
    "blocks of which one output is dropped": (
        lambda: Made(_dropped, first=_linear(), blocks=nn.ModuleList(Crossing(8) for _ in range(4))),
        LINEAR,
    ),
    "blocks of blocks": (
        lambda: stack(
            *(nn.Sequential(Block(), Block(), nn.Sequential(Block(groups=2), Block(groups=2))) for _ in range(3))
        ),
        IMAGE,
    ),
    "blocks that write their input": (
        lambda: stack(*(nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(8, 8, 1)) for _ in range(3))),
        IMAGE,
    ),
    "blocks written into afterwards": (
        lambda: Made(
            _after, stem=nn.Conv2d(3, 8, 1), blocks=nn.ModuleList(nn.Sequential(nn.Conv2d(8, 8, 1)) for _ in range(3))
        ),
        IMAGE,
    ),
    "one block called again and again": (
        lambda: Made(lambda m, x: m.b(m.b(m.b(m.stem(x)))), stem=nn.Conv2d(3, 8, 1), b=Block()),
        IMAGE,
    ),
}
"""Name → (how to make it, sizes of its input or the input itself)."""


class Collecting(nn.Module):
    """Adds what it made to a list that it is given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width))

    def forward(self, x: torch.Tensor, found: list[torch.Tensor]) -> torch.Tensor:
        out = self.inner(x)
        found.append(self.inner(out))
        return out


class Repeated(nn.Module):
    """A setting of its own says how often its layer is used."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(8, 8, 1))
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = self.conv(x)
        return x


class Crossing(nn.Module):
    """(a, b) → (W a, V b + a): the first output knows nothing of b."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w = nn.Sequential(nn.Linear(width, width))
        self.v = nn.Sequential(nn.Linear(width, width))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.w(a), self.v(b) + a


def _with_list(m: Any, x: Any) -> Any:
    found: list[torch.Tensor] = []
    for block in m.blocks:
        x = block(x, found)
    return m.head(sum(found))


def _with_lists(m: Any, x: Any) -> Any:
    x = m.head(x)
    found: list[torch.Tensor] = []
    for block in m.blocks:
        own: list[torch.Tensor] = []
        x = block(x, own)
        found += own
    return m.head(sum(found))


def _crossed(m: Any, x: Any) -> Any:
    a, b = x, m.first(x)
    for block in m.blocks:
        a, b = block(a, b)
    return a, b


def _dropped(m: Any, x: Any) -> Any:
    return _crossed(m, x)[0]


def _after(m: Any, x: Any) -> Any:
    x = m.stem(x)
    for block in m.blocks:
        x = block(x)
        x += 1
        x[:, :2].mul_(m.stem.bias[:2, None, None])
    return x


def _vectors(m: Any, x: Any) -> Any:
    y = m.a(x)
    vector = y[0]
    outer = torch.addr(m.b.weight, vector, m.b.bias)
    summed = torch.addbmm(outer, y[None].transpose(1, 2), y[None])
    return summed @ vector + torch.dot(vector, m.b.bias) + torch.addmv(vector, m.b.weight, vector)


def _without_gradients(m: Any, x: Any) -> Any:
    with torch.no_grad():
        y = m.a(x)
    return m.b(y)


def _beside(m: Any, x: Any) -> Any:
    y = x @ m.a.weight.t()
    return y, x @ m.b.weight.detach() @ m.b.weight.detach()


def _only_bias() -> nn.Module:
    model = stack(nn.Conv2d(8, 4, 3))
    _frozen(model)
    model[1].bias.requires_grad_()
    return model


def _only_norm() -> nn.Module:
    block = _frozen(Block())
    block.bn.requires_grad_()
    return block


def _frozen_up_to(count: int) -> nn.Module:
    model = stack(*(Block() for _ in range(5)))
    for layer in model[: count + 1]:
        _frozen(layer)
    return model


def _half_frozen_lstm() -> nn.Module:
    rnn = nn.LSTM(16, 8, 2)
    for name, parameter in rnn.named_parameters():
        parameter.requires_grad_(name.endswith("l1"))
    return Made(lambda m, x: m.rnn(x)[0], rnn=rnn)


def _old_weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(layer)


def _projected(m: Any, x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LSTM with projections", UserWarning)  # not supported with oneDNN, it says
        return m.rnn(x)[0]
