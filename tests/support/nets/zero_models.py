"""torchvision's models with all weights zero: their initialisation takes longer than what is tested with them."""

import torch
from torchvision.models import get_model


def zeroed(name, **options):
    """The model on the CPU, in training mode, 10 classes."""
    with torch.device("meta"):
        model = get_model(name, num_classes=10, **options)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    return model
