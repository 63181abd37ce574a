"""Small networks for accounts: sharing, names, freezing, checkpointing, and what only training or data decide."""

import torch
import torch.fx
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.support.account_nets.account_nets_layers import Lambda, Pair


def embeddings():
    return nn.Sequential(nn.Embedding(11, 12), nn.LayerNorm(12), nn.Linear(12, 11))


def tokens_linear():
    return nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 4, bias=False))


class Conv1D(nn.Module):
    """As in transformers: a linear layer with its weight transposed, called a convolution."""

    def __init__(self, wide, narrow):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(narrow, wide))
        self.bias = nn.Parameter(torch.ones(wide))

    def forward(self, tokens):
        flat = torch.addmm(self.bias, tokens.reshape(-1, tokens.shape[-1]), self.weight)
        return flat.view(*tokens.shape[:-1], -1)


def named_convolution():
    return nn.Sequential(Conv1D(9, 12), nn.GELU(), Conv1D(4, 9))


def shared():
    """One layer in two parents, called in both."""
    layer = nn.Linear(12, 12)
    return nn.Sequential(nn.Sequential(layer), nn.Sequential(nn.ReLU(), layer), nn.Linear(12, 3))


def shared_norm():
    norm, act = nn.BatchNorm2d(4), nn.ReLU()
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 1), norm, act), nn.Sequential(nn.Conv2d(4, 4, 3), norm, act), act
    )


def called_twice():
    """One layer with one name, called twice."""
    return Lambda(lambda m, t: m.layer(m.layer(t)), layer=nn.Linear(12, 12))


def two_names():
    """One layer with two names in one parent."""
    layer = nn.Linear(12, 12)
    return Lambda(lambda m, t: m.second(F.relu(m.first(t))), first=layer, second=layer)


def shared_block():
    """A block that two parents have: all in it is met twice."""
    block = nn.Sequential(nn.Linear(12, 12), nn.ReLU())
    return nn.Sequential(nn.Sequential(block), nn.Sequential(block))


def past_hooks():
    return Lambda(
        lambda m, t: F.linear(m.first.forward(t), m.second.weight), first=nn.Linear(12, 9), second=nn.Linear(9, 4)
    )


def tied():
    """Logits by the embedding's own table."""
    return Lambda(lambda m, t: F.linear(m.table(t), m.table.weight), table=nn.Embedding(11, 12))


def frozen():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    return model


class Auxiliary(nn.Module):
    """A second head in training alone."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.second = nn.Linear(12, 9), nn.Linear(9, 4), nn.Linear(9, 5)

    def forward(self, tokens):
        value = self.body(tokens)
        return (self.head(value), self.second(value)) if self.training else self.head(value)


class EvaluatedOnly(nn.Module):
    """A product in evaluation alone, of constants."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 9)

    def forward(self, tokens):
        value = self.body(tokens)
        return value if self.training else value @ torch.ones(9, 9)


def _complex(module, tokens):
    value = torch.complex(module.linear(tokens), tokens[..., :7])
    return (value @ value.mT).abs()


def complex_numbers():
    return Lambda(_complex, linear=nn.Linear(12, 7))


def several_inputs():
    return Pair(lambda m, a, b: m.linear(a) + m.relu(m.linear(b)), linear=nn.Linear(12, 7), relu=nn.ReLU())


def checkpointed():
    """The block is calculated again in the backward pass."""
    block = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 1))
    return Lambda(
        lambda m, x: m.head(checkpoint(m.block, m.stem(x), use_reentrant=False).mean((2, 3))),
        stem=nn.Conv2d(3, 4, 1),
        block=block,
        head=nn.Linear(5, 2),
    )


def checkpointed_linear():
    """The last product of the block is cut short when it is calculated again; a layer alone, too."""

    def run(module, tokens):
        value = checkpoint(module.block, module.stem(tokens), use_reentrant=False)
        return checkpoint(module.last.forward, value, use_reentrant=False)

    block = nn.Sequential(nn.Linear(12, 9), nn.GELU(), nn.Linear(9, 12))
    return Lambda(run, stem=nn.Linear(12, 12), block=block, last=nn.Linear(12, 7))


def checkpointed_attention():
    layer = nn.TransformerEncoderLayer(12, 2, 20, batch_first=True)
    return Lambda(lambda m, t: checkpoint(m.layer, m.stem(t), use_reentrant=False), stem=nn.Linear(12, 12), layer=layer)


def checkpointed_with_reentry():
    block = nn.Sequential(nn.Linear(12, 9), nn.GELU(), nn.Linear(9, 12))
    return Lambda(lambda m, t: checkpoint(m.block, m.stem(t), use_reentrant=True), stem=nn.Linear(12, 12), block=block)


def _data(module, tokens):
    value = module.linear(tokens)
    rows = int((value.abs() >= 0).sum()) // 7  # all of them, but only data tell
    return value.flatten(0, 1)[:rows] @ module.weight


def data_decides():
    return Lambda(_data, linear=nn.Linear(12, 7), weight=nn.Parameter(torch.ones(7, 3)))


def timm_attention():
    from timm.layers import Attention

    return nn.Sequential(Attention(12, 3, qkv_bias=True), nn.Linear(12, 4))


def vision_block():
    from timm.models.vision_transformer import Block

    return Block(12, 3)


def in_autocast():
    def run(module, tokens):
        with torch.autocast("cpu", torch.bfloat16):
            return module.second(module.first(tokens))

    return Lambda(run, first=nn.Linear(12, 7), second=nn.Linear(7, 4))


def keywords():
    """Layers called with their inputs by name."""
    return Lambda(lambda m, t: F.relu(input=F.linear(input=t, weight=m.linear.weight)), linear=nn.Linear(12, 7))


def module_keywords():
    return Lambda(lambda m, t: m.linear(input=m.norm(input=t)), linear=nn.Linear(12, 7), norm=nn.LayerNorm(12))


def weight_normed():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(12, 7)), nn.Linear(7, 3))


def half_precision():
    return nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 4)).to(torch.bfloat16)


def nothing():
    """No product at all, and no parameters but a norm's."""
    return nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.AvgPool2d(2))


torch.fx.wrap("wrapped_for_fx")


def wrapped_for_fx(value):
    if value.sum() > 1e30:  # torch.fx cannot look into this
        return value
    return value + value


def wrapped():
    return Lambda(lambda m, t: wrapped_for_fx(m.linear(t)), linear=nn.Linear(12, 7))


def residual():
    """Blocks that share an input: gradients meet."""
    parts = {"a": nn.Linear(12, 12), "b": nn.Linear(12, 12), "norm": nn.LayerNorm(12)}
    return Lambda(lambda m, t: m.norm((v := m.a(t)) + m.b(v) + v), **parts)


OUTSIDE = nn.SiLU()


def outside():
    """An activation module that is no part of the model: its hooks are nobody's."""
    return Lambda(lambda m, t: OUTSIDE(m.inner(t)), inner=nn.Linear(12, 7))
