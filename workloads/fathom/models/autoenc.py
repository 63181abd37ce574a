"""Fathom's `autoenc`: a variational autoencoder without any nonlinearity (Kingma and Welling 2014, arXiv:1312.6114).

With n pixels and l latent values it has 3nl + 2l + n parameters: one product each for mean, logarithm of the variance,
and reconstruction, whose weights begin at zero. Values are drawn in evaluation mode, too. The softplus that its code
sets is never used, and is left out. Images are as MNIST's, standardised: here blends of ten fixed patterns, and noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from workloads.catalogue.base import Batch

PATTERNS = 10

Coded = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Reconstruction, batch × pixels; mean and logarithm of the variance, batch × latent."""


class AutoEncoder(nn.Module):
    """Images, batch × pixels → Coded."""

    def __init__(self, pixels: int, latent: int) -> None:
        super().__init__()
        self.mean, self.log_variance = nn.Linear(pixels, latent), nn.Linear(pixels, latent)
        self.reconstruction = nn.Linear(latent, pixels)
        for parameter in self.reconstruction.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: torch.Tensor) -> Coded:
        mean, log_variance = self.mean(images), self.log_variance(images)
        drawn = mean + log_variance.exp().sqrt() * torch.randn_like(mean)
        return self.reconstruction(drawn), mean, log_variance


def loss(output: Coded, images: torch.Tensor) -> torch.Tensor:
    """Half the squared error of the whole batch, and the mean of the samples' distance from a normal distribution."""
    reconstruction, mean, log_variance = output
    distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1)
    return (0.5 * (reconstruction - images).square().sum() + distance).mean()


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Input and target: size × pixels, each of mean 0 and variance 1 over the samples."""
    shares = torch.randn(size, PATTERNS, device=device, generator=generator)
    noise = torch.randn(size, hyper["pixels"], device=device, generator=generator)
    at = torch.arange(hyper["pixels"], device=device) / hyper["pixels"]
    patterns = torch.cos(torch.pi * torch.arange(1, PATTERNS + 1, device=device).unsqueeze(1) * at)
    images = (shares @ patterns + noise) / (patterns.square().sum(dim=0) + 1).sqrt()
    return Batch((images,), images)


def images_of(_hyper: Mapping[str, int], size: int) -> int:
    """How many images a batch holds."""
    return size


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Adam of rate 0.001."""
    return torch.optim.Adam(parameters, lr=1e-3)
