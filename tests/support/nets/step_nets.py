"""Small nets whose steps are profiled: every kind of structure that a join of table and recording meets."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Net = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


class Checkpointed(nn.Module):
    """A layer, and a block whose activations are calculated again."""

    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)


class Operators(nn.Module):
    """einsum, @, a + b, +=, a matrix by a vector, torch.func, interpolate: no module around most of them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.einsum("bi,ij->bj", x, self.weight) + x @ self.weight
        y = y + x
        y += x
        z = torch.func.vmap(lambda row: (self.weight @ row).sum())(x)
        y = y * z[:, None]
        return F.interpolate(self.layer(y)[None], size=16) + y.mv(self.weight[0])[:, None]


def vision(name: str, size: int = 32, **more: Any) -> Net:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        import torchvision

        return getattr(torchvision.models, name)(**more), (torch.randn(2, 3, size, size),)

    return make


def vit() -> tuple[nn.Module, tuple[Any, ...]]:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 2, 2, 16, 32), (torch.randn(2, 3, 32, 32),)


def swin() -> tuple[nn.Module, tuple[Any, ...]]:
    from torchvision.models import SwinTransformer

    return SwinTransformer([4, 4], 16, [2, 2], [2, 2], [4, 4]), (torch.randn(1, 3, 64, 64),)


def encoder() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2), (torch.randn(2, 5, 16),)


NETS: dict[str, Net] = {
    "resnet18": vision("resnet18"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "vit": vit,
    "swin": swin,
    "lstm": lambda: (nn.LSTM(8, 8, 2), (torch.randn(5, 2, 8),)),
    "gru": lambda: (nn.GRU(8, 8, 2), (torch.randn(5, 2, 8),)),
    "encoder": encoder,
    "checkpointed": lambda: (Checkpointed(), (torch.randn(2, 8),)),
    "checkpointed, reentrant": lambda: (Checkpointed(True), (torch.randn(2, 8),)),
    "operators": lambda: (Operators(), (torch.randn(2, 8),)),
}
