"""Random small nets from what hypothesis draws: every layer takes and gives 4 × 8, so that any may follow any.

A net is a tree of steps, (name, two small numbers, bodies of steps); the numbers choose a variant and one of a few
shared layers. `Net` runs it; a body that a checkpoint runs says so to `running`, so that who looks on knows what is
computed again without asking PyTorch. Nothing here counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hypothesis.strategies as st
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils import checkpoint as checkpoints

ROWS, WIDTH = 4, 8

Step = tuple[str, int, int, tuple[Any, ...]]
running: list[int] = [0]
"""How many bodies of checkpoints run inside one another now."""


class Doubled(torch.autograd.Function):
    """x · W, whose backward pass multiplies once more than it must and gives W a gradient only if it is asked."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        again = gradient @ weight.t() @ weight
        return again @ weight.t(), x.t() @ gradient if ctx.needs_input_grad[1] else None


class Product(nn.Module):
    """A parametrization with a product."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.eye(WIDTH))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight @ self.by


def _linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def _parametrized(variant: int) -> nn.Module:
    layer = _linear()
    if variant == 0:
        return parametrizations.weight_norm(layer)
    if variant == 1:
        return parametrizations.spectral_norm(layer)
    if variant == 2:
        return nn.utils.spectral_norm(layer)
    parametrize.register_parametrization(layer, "weight", Product())
    return layer


class Shaped(nn.Module):
    """A layer on another shape than rows × width."""

    def __init__(self, layer: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.layer, self.shape = layer, tuple(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x.reshape(self.shape))
        return (out[0] if isinstance(out, tuple) else out).reshape(ROWS, WIDTH)


class Attending(nn.Module):
    """Attention of a net to itself."""

    def __init__(self, heads: int, mixed: bool) -> None:
        super().__init__()
        self.attention, self.mixed = nn.MultiheadAttention(WIDTH, heads), mixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x * 2 if self.mixed else x, need_weights=self.mixed)[0]


class Block(nn.Module):
    """Like many others: norm, layer, activation, and the input again."""

    def __init__(self, variant: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), nn.Sequential(_linear(), nn.GELU(), _linear())
        self.act = nn.ReLU(inplace=variant % 2 == 0)
        if variant == 3:
            self.inner[0].requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.inner(self.norm(x)))


def _convolution(variant: int) -> nn.Module:
    return [
        lambda: Shaped(nn.Conv1d(2, 2, 3, padding=1), (ROWS, 2, 4)),
        lambda: Shaped(nn.Conv2d(2, 2, 3, padding=1, groups=2, bias=False), (ROWS, 2, 2, 2)),
        lambda: Shaped(nn.Conv3d(1, 1, 3, padding=1), (ROWS, 1, 2, 2, 2)),
        lambda: Shaped(nn.ConvTranspose1d(4, 4, 2, stride=2, padding=1), (ROWS, 4, 2)),
        lambda: Shaped(nn.ConvTranspose2d(2, 2, 3, padding=1), (ROWS, 2, 2, 2)),
        lambda: Shaped(nn.Conv2d(8, 8, 1), (ROWS, 8, 1, 1)),
    ][variant]()


def _recurrent(variant: int) -> nn.Module:
    return [
        lambda: Shaped(nn.LSTM(4, 4), (2, ROWS, 4)),
        lambda: Shaped(nn.LSTM(8, 4, bidirectional=True, batch_first=True), (2, 2, 8)),
        lambda: Shaped(nn.LSTM(4, 4, num_layers=2, bias=False, dropout=0.5), (2, ROWS, 4)),
        lambda: Shaped(nn.GRU(4, 4, bidirectional=False), (2, ROWS, 4)),
        lambda: Shaped(nn.RNN(8, 8), (1, ROWS, 8)),
        lambda: Shaped(nn.LSTM(4, 8, proj_size=4), (2, ROWS, 4)),
    ][variant]()


MODULES: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda _v: _linear(),
    "frozen": lambda v: nn.Linear(WIDTH, WIDTH, bias=v % 2 == 0).requires_grad_(False),
    "only_bias": lambda _v: _frozen_weight(),
    "convolution": _convolution,
    "recurrent": _recurrent,
    "attention": lambda v: Attending(1 + v % 2, v > 2),
    "encoder": lambda v: nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, norm_first=v % 2 == 0),
    "block": Block,
    "blocks": lambda v: nn.Sequential(*(Block(v) for _ in range(3))),
    "parametrized": lambda v: _parametrized(v % 4),
    "batch_norm": lambda v: nn.BatchNorm1d(WIDTH, affine=v % 2 == 0),
    "norm": lambda v: [nn.LayerNorm(WIDTH), nn.GroupNorm(2, WIDTH), nn.RMSNorm(WIDTH)][v % 3],
    "act": lambda v: [nn.ReLU(), nn.ReLU(inplace=True), nn.GELU(), nn.SiLU(), nn.Hardtanh(), nn.Softmax(-1)][v],
    "dropout": lambda v: nn.Dropout(0.5 * (v % 3)),
    "bilinear": lambda _v: Twice(nn.Bilinear(WIDTH, WIDTH, WIDTH)),
}


class Twice(nn.Module):
    """A layer of two inputs that gets one."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, x)


def _frozen_weight() -> nn.Module:
    layer = _linear()
    layer.weight.requires_grad_(False)
    return layer


FUNCTIONS: dict[str, Callable[[Net, torch.Tensor, int], torch.Tensor]] = {
    "einsum": lambda net, x, v: [
        lambda: torch.einsum("ij,jk->ik", x, net.w),
        lambda: torch.einsum("ij,kj,kl->il", x, net.w, net.w),
        lambda: torch.einsum("ab,ab->ab", x, x * 2),
        lambda: torch.einsum("bij,bkj->bik", x.view(2, 2, 8), net.w.expand(2, 8, 8)).reshape(ROWS, WIDTH),
        lambda: x * torch.einsum("ij,ij->", x, x),
        lambda: torch.einsum("ij,j->i", x, net.w[0])[:, None] + x,
    ][v](),
    "tensordot": lambda net, x, v: torch.tensordot(x, net.w, dims=([1], [v % 2])),
    "baddbmm": lambda net, x, v: torch.baddbmm(
        net.w[:2, None], x.view(2, 2, 8), net.w.expand(2, 8, 8), beta=v % 2
    ).reshape(ROWS, WIDTH),
    "addmm": lambda net, x, v: torch.addmm(x, x, net.w) if v % 2 else torch.addmm(net.b, x, net.w.t()),
    "matmul": lambda net, x, v: [
        lambda: x @ net.w,
        lambda: (x[None] @ net.w)[0],
        lambda: x @ (net.w @ net.w.t()),
        lambda: x * (x @ net.b)[:, None],
        lambda: (x.view(2, 2, 8) @ net.w.expand(2, 8, 8)).reshape(ROWS, WIDTH),
        lambda: torch.linalg.multi_dot([x, net.w, net.w]),
    ][v](),
    "attend": lambda net, x, v: F.scaled_dot_product_attention(
        x.view(1, 2, 2, 8), (x @ net.w).view(1, 2, 2, 8), x.view(1, 2, 2, 8), is_causal=v % 2 == 1
    ).reshape(ROWS, WIDTH),
    "function": lambda net, x, v: Doubled.apply(x, net.w if v % 2 else net.w.detach()),
    "view": lambda net, x, v: [
        lambda: x.t().contiguous().t(),
        lambda: x.flip(0),
        lambda: torch.cat([x[:, 4:], x[:, :4]], 1),
        lambda: x.reshape(2, 16).reshape(ROWS, WIDTH),
        lambda: x.expand(2, ROWS, WIDTH).sum(0),
        lambda: torch.stack(x.unbind(1), 1),
    ][v](),
    "in_place": lambda net, x, v: [
        lambda: x.clone().mul_(2),
        lambda: x.clone().addmm_(x, net.w),
        lambda: _written(x, x @ net.w),
        lambda: (x * 1).add_(net.b),
        lambda: _written(x @ net.w, x),
        lambda: F.relu(x * 2, inplace=True),
    ][v](),
    "detached": lambda net, x, v: x + (x @ net.w).detach() if v % 2 else (x.detach() @ net.w),
    "no_grad": lambda net, x, v: _without_gradients(net, x),
    "beside": lambda net, x, v: _kept(net, x, x @ net.w),
    "size": lambda net, x, v: x @ net.w if x.shape[0] % (v + 1) else x + 1,
    "reduction": lambda net, x, v: [
        x - x.mean(), x / (1 + x.norm()), x.softmax(1), x.cumsum(0), x * x.std(), x + x.amax()
    ][v],
    "hook": lambda net, x, v: _hooked(net, x * 1, v),
    "other": lambda net, x, v: x + net.other @ net.w if v % 2 else x * net.other,
    "inner_gradient": lambda net, x, v: _inner_gradient(net, x, v),
}  # fmt: skip


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x * 1
    out[:, :2] = y[:, :2]
    return out


def _without_gradients(net: Net, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x @ net.w
    return x + y


def _kept(net: Net, x: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
    net.beside.append(beside)
    return x


def _hooked(net: Net, x: torch.Tensor, v: int) -> torch.Tensor:
    """Hooks that multiply, that change nothing, that stop at once; on a tensor or on its node."""
    if x.requires_grad:
        if v < 3:
            x.register_hook([lambda g: g @ net.w.detach(), lambda g: None, lambda g: g * 2][v])
        elif v == 3:
            x.grad_fn.register_prehook(lambda gs: (gs[0] @ net.w.detach(),))
        else:
            x.grad_fn.register_hook(lambda ins, outs: (ins[0] @ net.w.detach(), *ins[1:]))
    return x


def _inner_gradient(net: Net, x: torch.Tensor, v: int) -> torch.Tensor:
    with torch.enable_grad():
        y = (x if x.requires_grad else x.detach().requires_grad_()) * 1
        (gradient,) = torch.autograd.grad((y @ net.w).square().sum(), y, create_graph=v % 2 == 1)
    return x + gradient


def _selective(v: int) -> Any:
    products = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]

    def policy(_ctx: Any, op: Any, *_a: Any, **_k: Any) -> Any:
        saves = op in products[: 1 + v % 2]
        policies = checkpoints.CheckpointPolicy
        return policies.MUST_SAVE if saves else policies.PREFER_RECOMPUTE

    return partial(checkpoints.create_selective_checkpoint_contexts, policy)


class Net(nn.Module):
    """The net of a tree of steps. Gives its result, and what was kept beside it that needs no gradient or does."""

    def __init__(self, steps: Sequence[Step], returns: int) -> None:
        super().__init__()
        self.steps, self.returns = steps, returns
        self.w, self.b = nn.Parameter(torch.randn(WIDTH, WIDTH) / 3), nn.Parameter(torch.randn(WIDTH))
        self.shared = nn.ModuleList([_linear(), Block(0), nn.Sequential(_linear(), nn.ReLU(inplace=True))])
        self.made = nn.ModuleDict()
        self._build(steps, "s")
        self.beside: list[torch.Tensor] = []
        self.other = torch.zeros(ROWS, WIDTH)

    def _build(self, steps: Sequence[Step], prefix: str) -> None:
        for place, (name, variant, _which, bodies) in enumerate(steps):
            if name in MODULES:
                self.made[f"{prefix}{place}"] = MODULES[name](variant)
            elif name == "hooked_module":
                self.made[f"{prefix}{place}"] = _with_hooks(variant)
            for number, body in enumerate(bodies):
                self._build(body, f"{prefix}{place}_{number}_")

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> Any:
        self.other, self.beside = other, []
        out = self.run(self.steps, "s", x)
        beside, self.beside = self.beside, []
        return [
            out, (out, out * 2), {"out": out, "beside": beside}, [out, *beside], (out.detach(), out), (out, None)
        ][self.returns]  # fmt: skip

    def run(self, steps: Sequence[Step], prefix: str, x: torch.Tensor) -> torch.Tensor:
        for place, step in enumerate(steps):
            x = self.step(step, f"{prefix}{place}", x)
        return x

    def step(self, step: Step, path: str, x: torch.Tensor) -> torch.Tensor:
        name, v, which, bodies = step
        if path in self.made:
            return self.made[path](x.clone() if name == "act" and v == 1 else x)
        if name in FUNCTIONS:
            return FUNCTIONS[name](self, x, v)
        if name == "shared":
            return self.shared[which % 3](x)
        run = [partial(self.run, body, f"{path}_{number}_") for number, body in enumerate(bodies)]
        if name == "both":
            return run[0](x) + (run[1](x) if len(run) > 1 else x)
        body = partial(_inside, run[0])
        if name == "checkpoint":
            if v == 4:
                return checkpoints.checkpoint(body, x, use_reentrant=False, context_fn=_selective(which))
            with checkpoints.set_checkpoint_early_stop(v % 2 == 0):
                return checkpoints.checkpoint(body, x, use_reentrant=False, preserve_rng_state=v < 2)
        assert name == "reentrant", name
        return checkpoints.checkpoint(body, x, use_reentrant=True, preserve_rng_state=v < 2)


def _inside(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    running[0] += 1
    try:
        return run(x)
    finally:
        running[0] -= 1


def _with_hooks(variant: int) -> nn.Module:
    """A layer with hooks: of the forward pass, of gradients, of a parameter."""
    layer, by = _linear(), torch.eye(WIDTH)
    if variant == 0:
        layer.register_forward_hook(lambda m, _inputs, out: F.linear(out, m.weight))
    elif variant == 1:
        layer.register_full_backward_hook(lambda _m, ins, _outs: tuple(None if g is None else g @ by for g in ins))
    elif variant == 2:
        layer.register_full_backward_pre_hook(lambda _m, outs: tuple(g @ by for g in outs))
    elif variant == 3:
        layer.weight.register_hook(lambda g: g @ by)
    elif variant == 4:
        layer.weight.register_post_accumulate_grad_hook(lambda p: _product_of(p.grad, by))
    else:
        layer.register_forward_pre_hook(lambda m, inputs: (F.linear(inputs[0], m.weight),))
    return layer


def _product_of(gradient: torch.Tensor, by: torch.Tensor) -> None:
    gradient.copy_(gradient @ by)


SIMPLE = (*MODULES, *FUNCTIONS, "shared", "hooked_module")
HOLDING = ("checkpoint", "reentrant", "both")


def _bodies(steps: Any) -> Any:
    return st.lists(steps, min_size=1, max_size=3).map(tuple)


_number = st.integers(0, 5)
_step = st.recursive(
    st.tuples(st.sampled_from(SIMPLE), _number, _number, st.just(())),
    lambda steps: st.tuples(
        st.sampled_from(HOLDING), _number, _number, st.lists(_bodies(steps), min_size=1, max_size=2).map(tuple)
    ),
    max_leaves=8,
)

nets = st.tuples(st.lists(_step, min_size=1, max_size=5), _number)
"""(steps, what the net returns)"""


def made(net: tuple[Sequence[Step], int]) -> Net:
    """The net, always with the same weights."""
    torch.manual_seed(0)
    return Net(*net)


def inputs(need: tuple[bool, bool]) -> tuple[torch.Tensor, torch.Tensor]:
    """Two inputs that need a gradient or not."""
    torch.manual_seed(1)
    return torch.randn(ROWS, WIDTH, requires_grad=need[0]), torch.randn(ROWS, WIDTH, requires_grad=need[1])
