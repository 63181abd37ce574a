"""Makes workloads whose FLOP, time or bytes are known beforehand, to calibrate the harness.

`get` takes a name and sizes, and returns a `Workload`. The docstring of each builder gives the FLOP, seconds or bytes
of its forward and backward pass. The models learn nothing, and say nothing about real models.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch.nn.functional import mse_loss

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.catalogue import entry, hyper_of


class Sleep(torch.nn.Module):
    """Sleeps on the host, then scales its input; a step cannot be shorter."""

    def __init__(self, sleep_s: float) -> None:
        super().__init__()
        self.sleep_s = sleep_s
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        time.sleep(self.sleep_s)
        return images * self.scale


class Copy(torch.nn.Module):
    """Copies its input (each float32 element is read once and written once), then scales one element of each sample, so
    that there is a parameter to train."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return samples.clone()[:, :1] * self.scale


def build_matmul(width: int, depth: int) -> torch.nn.Module:
    """Return `depth` linear layers of width × width without bias.

    Each multiplies size × w by w × w: size·w² multiply-adds forward. Backward does the same once for each weight, and
    once more for each layer's input but the first's, which needs no gradient: 2·depth − 1 products.
    """
    return torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(depth)))


def build_convolution(image_size: int, channels: int) -> torch.nn.Module:
    """Return one 3 × 3 convolution of c to c channels without bias that keeps S × S positions: 9·c² multiply-adds at
    each.

    Its input needs no gradient: the backward pass computes the weight's only, with as many multiply-adds.
    """
    return torch.nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)


def _shape(name: str, hyper: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of one sample."""
    if name == "synthetic_convolution":
        return (hyper["channels"], hyper["image_size"], hyper["image_size"])
    return (hyper.get("width", 1),)


def _batch(
    name: str, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Return standard normal samples and targets."""
    sample = torch.randn(size, *_shape(name, hyper), device=device, generator=generator)
    target = torch.randn(
        size, *((1,) if name == "synthetic_copy" else _shape(name, hyper)), device=device, generator=generator
    )
    return Batch((sample,), target)


BUILDERS: Mapping[str, Callable[..., torch.nn.Module]] = {
    "synthetic_matmul": build_matmul,
    "synthetic_convolution": build_convolution,
    "synthetic_sleep": lambda sleep_us: Sleep(sleep_us / 1e6),
    "synthetic_copy": lambda width: Copy(),
}


def get(name: str, /, **hyper: int) -> Workload:
    """Return the synthetic workload of this name. Raises ValueError for an unknown name or size."""
    known = entry(name)
    if name not in BUILDERS:
        raise ValueError(f"{name} is no synthetic workload; they are {', '.join(BUILDERS)}")
    return Workload(
        name=name,
        task=known.task,
        hyper=hyper_of(name, **hyper),
        build=BUILDERS[name],
        batch=partial(_batch, name),
        loss=mse_loss,
        source=known.source,
    )
