"""Nets of blocks of which some are checkpointed by torch, to hold predictions of checkpointing against."""

from collections.abc import Callable, Collection
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

BLOCKS = 6

Stretches = Collection[tuple[int, int]]


class Wide(nn.Module):
    """Normalised, widened, narrowed, added to what came."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Attending(nn.Module):
    """Attention of 4 heads, added to what came."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, 32))


class Residual(nn.Module):
    """Two convolutions with normalisation, the sum activated in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.one, self.two, self.act = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.one(self.first(x)))
        y = self.two(self.second(y))
        y += x
        return self.act(y)


class Chain(nn.Module):
    """Blocks one after the other, then the mean and a layer of two classes. chosen: stretches of blocks, each (first,
    last), that are checkpointed."""

    def __init__(self, block: Callable[[], nn.Module], width: int, chosen: Stretches) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))
        self.head, self.chosen = nn.Linear(width, 2), dict(chosen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = 0
        while number < BLOCKS:
            last = self.chosen.get(number)
            if last is None:
                x, number = self.blocks[number](x), number + 1
            else:
                x = checkpoint(self.stretch(number, last), x, use_reentrant=False)
                number = last + 1
        return self.head(x.mean((2, 3)) if x.dim() == 4 else x.mean(1))

    def stretch(self, first: int, last: int) -> Callable[[torch.Tensor], torch.Tensor]:
        """Blocks one after the other."""

        def run(x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks[first : last + 1]:
                x = block(x)
            return x

        return run


NETS: dict[str, tuple[Callable[[Stretches], nn.Module], tuple[int, ...]]] = {
    "wide": (partial(Chain, Wide, 32), (8, 64, 32)),
    "attention": (partial(Chain, Attending, 32), (8, 64, 32)),
    "residual": (partial(Chain, Residual, 8), (8, 8, 16, 16)),
}
"""Name → the net with some blocks checkpointed, and the sizes of its input."""
