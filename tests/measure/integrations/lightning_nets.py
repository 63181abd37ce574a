"""Lightning's modules around functions of themselves and a batch."""

from collections.abc import Callable
from typing import Any

import torch


def lightning_module(run: Callable[..., torch.Tensor], calls_itself: bool = True, **parts: torch.nn.Module) -> Any:
    """calls_itself: whether a step calls the module, or its parts."""
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x):
            return run(self, x)

        def training_step(self, batch, _index):
            return (self(batch) if calls_itself else run(self, batch)).square().mean()

        def validation_step(self, batch, _index):
            self(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Net()
