"""Small nets whose training steps are recorded by torch.profiler and traced by ourselves."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.nets.small_steps import Build, Calls, Small, parts


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8, stride=2, padding=1, bias=False),
        nn.Conv2d(8, 6, 1),
        nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1),
        nn.Conv2d(4, 4, 3, dilation=2, groups=2),
        nn.Flatten(),
        nn.Linear(144, 8),
        nn.Linear(8, 2, bias=False),
    )


def _attention(mask: bool) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(2, (2, 4)).transpose(1, 2)
        bias = self.bias.weight if mask else None
        return self.fc(F.scaled_dot_product_attention(q, q, q, attn_mask=bias).mean((1, 2)))

    return Calls(forward, q=nn.Linear(8, 8), fc=nn.Linear(4, 2), bias=nn.Linear(4, 4))


def _products() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        z = torch.einsum("bij,bkj->bik", y, y) @ y
        return self.fc(z.mean(1))

    return Calls(forward, a=nn.Linear(8, 8), fc=nn.Linear(8, 2))


NETS: dict[str, Build] = {
    "small": parts(Small),
    "cnn": parts(cnn),
    "cnn, bf16": parts(cnn, autocast=torch.bfloat16),
    "1 dimension": parts(
        lambda: nn.Sequential(
            nn.Conv1d(4, 6, 3, padding=1), nn.ConvTranspose1d(6, 4, 2, 2), nn.Flatten(), nn.Linear(64, 2)
        ),
        (2, 4, 8),
    ),
    "3 dimensions": parts(
        lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.Conv3d(4, 4, 1), nn.Flatten(), nn.Linear(108, 2)), (2, 2, 5, 5, 5)
    ),
    "attention, fused": parts(lambda: _attention(False), (2, 4, 8)),
    "attention, plain": parts(lambda: _attention(True), (2, 4, 8)),
    "products": parts(_products, (2, 4, 8)),
    "lstm": parts(
        lambda: Calls(lambda s, x: s.fc(s.rnn(x)[0][:, -1]), rnn=nn.LSTM(8, 4, 2), fc=nn.Linear(4, 2)), (2, 4, 8)
    ),
    "gru": parts(lambda: Calls(lambda s, x: s.fc(s.rnn(x)[0][:, -1]), rnn=nn.GRU(8, 4), fc=nn.Linear(4, 2)), (2, 4, 8)),
    "transformer": parts(
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Flatten(), nn.Linear(32, 2)
        ),
        (2, 4, 8),
    ),
}
