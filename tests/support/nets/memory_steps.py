"""Training steps of small nets whose memory differs in kind."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from measure.operations.fake_mode import FakeMode
from measure.operations.tracer import StepParts
from tests.support.nets.small_steps import Build, Calls


class Recurrent(nn.Module):
    """Two layers of LSTM over 7 steps, the last output to 2 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, 2, batch_first=True)
        self.fc = nn.Linear(64, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.lstm(x)[0][:, -1])


class Attention(nn.Module):
    """One block: attention of 4 heads, then a wide layer and back, both with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)
        self.fc = nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, 32))
        return self.fc((x + self.down(F.gelu(self.up(self.norm(x))))).mean(1))


def convolved() -> nn.Module:
    """Convolution, normalisation, an activation in place; twice."""
    blocks = [
        layer
        for c in (3, 16)
        for layer in (nn.Conv2d(c, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))


def perceptron(width: int = 48, depth: int = 4) -> nn.Sequential:
    """Linear layers with tanh between."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 2))


def frozen() -> nn.Module:
    """All but the last two layers have weights that need no gradient."""
    net = perceptron()
    for layer in net[:6]:
        layer.requires_grad_(False)
    return net


def written_in_place() -> nn.Module:
    """Parts of a buffer written one after the other, and views that share it."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.shape[0], 96)
        y[:, :48] = self.a(x)
        y[:, 48:] = self.b(x)
        return self.fc(y.relu_().view(-1, 2, 48).transpose(1, 2).sum(2).mul_(2))

    return Calls(forward, a=nn.Linear(48, 48), b=nn.Linear(48, 48), fc=nn.Linear(48, 2))


def checkpointed() -> nn.Module:
    """The first layers recomputed in the backward pass."""
    return Calls(
        lambda s, x: s.tail(checkpoint(s.body, s.head(x), use_reentrant=False)),
        head=nn.Linear(48, 48),
        body=perceptron()[:6],
        tail=nn.Linear(48, 2),
    )


def met() -> nn.Module:
    """A tensor that two products read, so that its gradients meet."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        return self.fc((y * 2).sum(1, keepdim=True) + (y * 3).sum(1, keepdim=True))

    return Calls(forward, a=nn.Linear(48, 48), fc=nn.Linear(1, 2))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (convolved, (8, 3, 32, 32)),
    "lstm": (Recurrent, (8, 7, 32)),
    "attention": (Attention, (8, 24, 32)),
    "in place": (written_in_place, (256, 48)),
    "checkpoint": (checkpointed, (256, 48)),
    "frozen": (frozen, (256, 48)),
    "linear": (perceptron, (256, 48)),
}
"""Name → net, and the sizes of its input."""


def accumulated(parts: Build, times: int = 2) -> Build:
    """The same step with its gradients summed over several batches before the optimizer's step."""

    def build(mode: FakeMode | None) -> StepParts:
        built = parts(mode)
        training: Any = built.step

        def step(mark: Callable[[str], None]) -> None:
            built.optimizer.zero_grad()
            for _ in range(times):
                mark("forward")
                output = training.model(*built.inputs[:1])
                mark("loss")
                loss = training.loss(output, built.inputs[1])
                del output
                mark("backward")
                loss.backward()
                del loss
            mark("optimizer")
            built.optimizer.step()
            mark("end")

        return StepParts(step, built.model, built.optimizer, built.inputs)

    return build
