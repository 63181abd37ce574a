"""`gpt2`: the GPT-2 of `workloads/text/gpt.py` in the form of Fathom's workloads, with text that can be learnt.

Not Fathom's, which is of 2016. A text counts on by one, two or three from a random token on, around the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from workloads.catalogue.base import Batch
from workloads.text.tokens import draw


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Inputs: size × seq tokens; target: the token after each."""
    first, step = draw((size, 1), hyper["vocab"], device, generator), 1 + draw((size, 1), 3, device, generator)
    tokens = (first + step * torch.arange(hyper["seq"] + 1, device=device)) % hyper["vocab"]
    return Batch((tokens[:, :-1].clone(),), tokens[:, 1:].clone())


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW of rate 0.0006, weight decay 0.1."""
    return torch.optim.AdamW(parameters, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
