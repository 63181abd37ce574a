"""Run as a program on a stand-in device: one training step of each model, and the FLOP that the device was given.

Arguments: batch size, image size, models. Prints {"model": [forward, backward]} as JSON: FLOP of what cuDNN and cuBLAS
were asked for, by their descriptors and arguments (and of torch's own depthwise kernels, by theirs).
"""

from __future__ import annotations

import json
import os
import struct
import sys

import torch
import torchvision

FLOP_AT, UNITS = 16, 4  # `State` of standin.h: magic and launches come first


def given_flop() -> int:
    """All FLOP that the device was given until now."""
    with open(os.environ["STANDIN_STATE"], "rb") as file:
        return sum(struct.unpack_from(f"{UNITS}Q", file.read(FLOP_AT + 8 * UNITS), FLOP_AT))


def of_a_step(name: str, batch: int, pixels: int) -> list[int]:
    """FLOP of the forward pass and of the backward pass."""
    with torch.device("cuda"):
        model = torchvision.models.get_model(name)
        images, labels = torch.zeros(batch, 3, pixels, pixels), torch.zeros(batch, dtype=torch.long)
    before = given_flop()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    between = given_flop()
    loss.backward()
    return [between - before, given_flop() - between]


if __name__ == "__main__":
    batch, pixels, *models = sys.argv[1:]
    print(json.dumps({name: of_a_step(name, int(batch), int(pixels)) for name in models}))
