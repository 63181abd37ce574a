"""Small nets whose steps are traced."""

import torch
from torch import nn

from tests.support.nets.small_steps import (
    Build,
    Calls,
    Small,
    parts,
)

NETS: dict[str, Build] = {
    "small": parts(Small),
    "small, adamw": parts(Small, optimizer="adamw"),
    "small, bf16": parts(Small, autocast=torch.bfloat16),
    "transformer": parts(
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), nn.Flatten(), nn.Linear(32, 2)
        ),
        (2, 4, 8),
    ),
    "lstm": parts(
        lambda: Calls(lambda s, x: s.fc(s.rnn(x)[0][:, -1]), rnn=nn.LSTM(8, 4), fc=nn.Linear(4, 2)), (2, 4, 8)
    ),
    "grouped": parts(
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2, stride=2),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.ConvTranspose2d(8, 4, 3),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 2),
        ),
        (2, 4, 8, 8),
    ),
}
