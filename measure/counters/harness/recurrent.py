"""How many of the operations that a counter tells of a recurrent layer are multiply-adds.

Each step multiplies by every input and hidden weight once. This is how ptflops, DeepSpeed and calflops take its sizes,
not what the layer computes: the first two sizes are batch and steps in whatever order, a bidirectional layer is twice
its forward half, and projections are left out.
"""

import torch

WEIGHTS = ("weight_ih", "weight_hh")


def recurrent_multiply_adds(module: torch.nn.Module, sequence: torch.Tensor) -> int:
    """Multiply-adds of one call. module: of RNNBase or RNNCellBase; sequence: its first input."""
    weights = sum(
        weight.numel()
        for name, weight in module.named_parameters()
        if name.startswith(WEIGHTS) and not name.endswith("_reverse")
    )
    steps = sequence.shape[0] * (sequence.shape[1] if isinstance(module, torch.nn.RNNBase) else 1)
    return weights * steps * (2 if getattr(module, "bidirectional", False) else 1)
