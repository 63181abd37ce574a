"""Sizes of the models in the notebooks: those of the text, or small ones if FLOPLEDGER_SMALL is set, as in tests.

FLOPLEDGER_NOTEBOOK_OUT: the folder that takes what they write; without it, results/runs of the checkout.
"""

import os
import time
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def choose(full: T, *, small: T) -> T:
    """The first, or `small` where FLOPLEDGER_SMALL is set."""
    return small if os.environ.get("FLOPLEDGER_SMALL") else full


def folder(name: str) -> Path:
    """A new folder for what a notebook writes; each run of the notebook has its own."""
    base = Path(os.environ.get("FLOPLEDGER_NOTEBOOK_OUT", "results/runs"))
    return base / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def on_cuda() -> bool:
    """Whether there is a CUDA device."""
    import torch

    return torch.cuda.is_available()


def train_step(model: Any, optimizer: Any, batch: Any) -> None:
    """One step on images and labels."""
    from torch.nn.functional import cross_entropy

    images, labels = batch
    optimizer.zero_grad()
    cross_entropy(model(images), labels).backward()
    optimizer.step()
