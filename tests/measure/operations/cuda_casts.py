"""What a device gives under autocast, and what it keeps of dropout."""

import torch
from torch.nn import functional

HALF, WHOLE = torch.bfloat16, torch.float32


def dtypes(device: str = "cpu") -> dict[str, torch.dtype]:
    """What operators give under autocast of bfloat16 for an input of it."""
    x = torch.randn(2, 4, dtype=HALF, device=device)
    with torch.autocast(device, HALF):
        return {
            "softmax": x.softmax(-1).dtype,
            "log_softmax": functional.log_softmax(x, -1).dtype,
            "layer_norm": functional.layer_norm(x, (4,)).dtype,
            "pow": x.pow(2).dtype,
            "sum": x.sum().dtype,
            "linear": functional.linear(x, torch.randn(3, 4, device=device)).dtype,
            "gelu": functional.gelu(x).dtype,
            "add": (x + x).dtype,
        }


def saved_bytes(x: torch.Tensor) -> int:
    """Of what the backward pass of softmax, dropout and a product keeps of a matrix of weights."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor.numel() == x.numel():
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = functional.dropout(x.softmax(-1), 0.1) @ torch.randn(
            x.shape[-1], 3, device=x.device, requires_grad=True
        )
        found = sum(kept.values())
        result.sum().backward()
    assert x.grad is not None
    return found
