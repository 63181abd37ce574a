"""Run as a program on a stand-in device: training steps of each model, and what the device was given.

Arguments: batch size, image size, models. Prints {"model": [forward, backward, launches]} as JSON: FLOP of what cuDNN
and cuBLAS were asked for, by their descriptors and arguments (and of torch's own depthwise kernels, by theirs), and the
kernels of a whole step with its optimizer, SGD with momentum and decay, as it is once everything is allocated.
"""

from __future__ import annotations

import json
import os
import struct
import sys

import torch
import torchvision

LAUNCHES_AT, UNITS = 8, 4  # `State` of standin.h: magic, launches, FLOP by unit


def given() -> tuple[int, int]:
    """Kernels and FLOP that the device was given until now."""
    with open(os.environ["STANDIN_STATE"], "rb") as file:
        launches, *flop = struct.unpack_from(f"{1 + UNITS}Q", file.read(LAUNCHES_AT + 8 * (1 + UNITS)), LAUNCHES_AT)
    return launches, sum(flop)


def of_a_step(name: str, batch: int, pixels: int) -> list[int]:
    """FLOP of the forward pass and of the backward pass, and kernels of a whole step, the second one."""
    with torch.device("cuda"):
        model = torchvision.models.get_model(name)
        images, labels = torch.zeros(batch, 3, pixels, pixels), torch.zeros(batch, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(2):
        launches, before = given()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        between = given()[1]
        loss.backward()
        after = given()[1]
        optimizer.step()
    return [between - before, after - between, given()[0] - launches]


if __name__ == "__main__":
    batch, pixels, *models = sys.argv[1:]
    print(json.dumps({name: of_a_step(name, int(batch), int(pixels)) for name in models}))
