"""Shapes of what torch gives no rule for on fake tensors: the CTC loss, whose kernels are the CPU's and cuDNN's alone.

A rule makes tensors of the sizes that the kernel would make. It is for lengths that are tensors: with lists of lengths
torch's own derivative does not run on fake tensors, and such a step is traced on real ones, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from results.errors import Unavailable

_aten = torch.ops.aten


def ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, *_rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each sample, and what the backward pass needs: batch × frames × (2 labels + 1).

    As if one sample had as many labels as there is room for. log_probs: frames × batch × classes. Raises Unavailable of
    labels that lie one after the other in one dimension: how many a sample has, only their values say.
    """
    frames, size = log_probs.shape[0], log_probs.shape[1]
    if targets.dim() != 2:
        raise Unavailable("fake tensors cannot run a CTC loss of labels in one dimension")
    return log_probs.new_empty(size), log_probs.new_empty(size, frames, 2 * targets.shape[1] + 1)


def ctc_loss_backward(_grad: torch.Tensor, log_probs: torch.Tensor, *_rest: Any) -> torch.Tensor:
    """As log_probs."""
    return torch.empty_like(log_probs)


SHAPES: Mapping[Any, Callable[..., Any]] = {
    _aten._ctc_loss.Tensor: ctc_loss,
    _aten._ctc_loss_backward.Tensor: ctc_loss_backward,
}
"""Operator → what it gives for fake tensors."""
