"""Run as a program on a stand-in device: training steps of each model, and what the device was given.

Arguments: batch size, image size, models. Prints {"model": [forward, backward, launches]} as JSON: FLOP of what cuDNN
and cuBLAS were asked for, by their descriptors and arguments (and of torch's own depthwise kernels, by theirs), and the
kernels of a whole step with its optimizer, SGD with momentum and decay, as it is once everything is allocated.
"""

import json
import sys

import torch
import torchvision

from tests.standin.programs.device_tasks import page


def of_a_step(name: str, batch: int, pixels: int) -> list[int]:
    """FLOP of the forward pass and of the backward pass, and kernels of a whole step, the second one."""
    with torch.device("cuda"):
        model = torchvision.models.get_model(name)
        images, labels = torch.zeros(batch, 3, pixels, pixels), torch.zeros(batch, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(2):
        before = page()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        between = page().flop
        loss.backward()
        after = page().flop
        optimizer.step()
    return [between - before.flop, after - between, page().launches - before.launches]


if __name__ == "__main__":
    batch, pixels, *models = sys.argv[1:]
    print(json.dumps({name: of_a_step(name, int(batch), int(pixels)) for name in models}))
