"""Run as a program on a stand-in device: a plain training loop under the meter. Prints what it gives as JSON.

Arguments: steps, "plain" or "autocast". torch raises where anything in a step waits for the device. Before each step
the host waits until the device has nothing to do, as a loop does that reads its loss: that time is outside of steps.
"""

import contextlib
import json
import sys
from dataclasses import asdict

import torch
import torchvision

import flopledger


def main(steps: int, way: str) -> None:
    with torch.device("cuda"):
        model = torchvision.models.resnet18()
        images, labels = torch.zeros(8, 3, 64, 64), torch.zeros(8, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = flopledger.UtilizationMeter(model, warm_up_steps=2)
    autocast = torch.autocast("cuda", torch.bfloat16) if way == "autocast" else contextlib.nullcontext()
    for _ in range(steps):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        with meter.step():
            optimizer.zero_grad()
            with autocast:
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        torch.cuda.set_sync_debug_mode("default")
    found = asdict(meter.summary())
    exact = flopledger.count(model.cpu(), images.cpu())
    print(json.dumps({"found": found, "exact": exact.model_flop}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
