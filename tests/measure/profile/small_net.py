"""A small convolutional net with a body that runs twice."""

import torch
from torch import nn


class Net(nn.Module):
    """A stem, a grouped convolution around which its input goes too, a body that runs twice, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = x + self.grouped(x)
        return self.fc(self.body(self.body(x)).mean((2, 3)))
