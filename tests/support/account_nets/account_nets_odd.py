"""Small networks for accounts: what graphs fold, drop or do not look into, and inputs without a batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.support.account_nets.account_nets_layers import Lambda


def _constants(module, tokens):
    """7 numbers from constants, twice, then with the tokens: by the constant's own method, and by the tokens'."""
    ramp = torch.arange(7) + 2
    ramp = torch.mul(module.places, 3) + ramp
    value = module.linear(tokens) * ramp
    value = ramp + value
    square = torch.ones(7, 7)
    value = value @ (square @ square)
    value = value + module.act(torch.ones(7)) * 2
    return value + module.weight * 2


def constants():
    parts = {"linear": nn.Linear(12, 7), "act": nn.ReLU(), "weight": nn.Parameter(torch.ones(7))}
    model = Lambda(_constants, **parts)
    model.register_buffer("places", torch.ones(7))
    return model


def _unused(module, tokens):
    value = module.linear(tokens)
    _ = module.left_out(F.layer_norm(value, (7,)))
    return {"value": value.detach() + module.other(value), "count": (value > 0).sum()}


def unused():
    """A layer of a norm whose result goes nowhere."""
    return Lambda(_unused, linear=nn.Linear(12, 7), left_out=nn.Linear(7, 5), other=nn.Linear(7, 7))


class Product(torch.autograd.Function):
    """A product with a backward pass written by hand, which is of one factor alone."""

    @staticmethod
    def forward(ctx, left, right):
        ctx.save_for_backward(left)
        return F.layer_norm(left, (7,)) @ right

    @staticmethod
    def backward(ctx, gradient):
        (left,) = ctx.saved_tensors
        return None, left.flatten(0, 1).t() @ gradient.flatten(0, 1)


def applied():
    weight = nn.Parameter(torch.ones(7, 3))
    return Lambda(lambda m, t: Product.apply(m.linear(t), m.weight) + 1, linear=nn.Linear(12, 7), weight=weight)


def _without_batch(module, images):
    value = module.up(F.relu(module.first(images[0])))
    return [module.deep(value[:, None]), module.plain(value)]


def without_batch():
    """3 × 8 × 8 of the first sample: convolutions on an input without a batch."""
    return Lambda(
        _without_batch,
        first=nn.Conv2d(3, 5, 3),
        up=nn.ConvTranspose2d(5, 4, 3, stride=2),
        deep=nn.Conv3d(4, 2, (1, 2, 2)),
        plain=nn.Conv2d(4, 4, 2, groups=2),
    )


def line_without_batch():
    return Lambda(lambda m, s: m.line(s[0]), line=nn.Conv1d(5, 6, 2))


def _warped(module, images):
    where = module.place(images.mean((2, 3))).view(-1, 2, 3)
    return F.grid_sample(images, F.affine_grid(where, (len(images), 3, 6, 5), align_corners=False), align_corners=False)


def warped():
    """A spatial transformer: the grid is a product inside of an operator that is none."""
    return Lambda(_warped, place=nn.Linear(3, 6))


def calculated_weight():
    """A layer whose weight is divided by its largest singular value each time: two products, and then its own."""
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(12, 9)), nn.GELU(), nn.Linear(9, 12))


def checkpointed_twice():
    """A layer that runs in two checkpoints that enter the engine again."""

    def run(module, tokens):
        value = checkpoint(module.block, module.stem(tokens), use_reentrant=True)
        return checkpoint(module.block, value, use_reentrant=True)

    block = nn.Sequential(nn.Linear(12, 9), nn.GELU(), nn.Linear(9, 12))
    return Lambda(run, stem=nn.Linear(12, 12), block=block)
