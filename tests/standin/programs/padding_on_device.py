"""Run as a program on a stand-in device: a loop whose batches have an `attention_mask` on the device. Prints JSON.

Argument: steps. torch raises where anything in a step waits for the device. A kernel of the stand-in computes nothing,
so that what is read of the mask is any number.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import torch

import flopledger
from measure.meter.masks.padding_masks import PaddingMasks
from tests.support.nets.masked_nets import Attends

SEQUENCES, LENGTH, HEADS, HEAD = 2, 16, 2, 8


def main(steps: int) -> None:
    with torch.device("cuda"):
        model = Attends(HEADS * HEAD, HEADS)
        x, mask = torch.zeros(SEQUENCES, LENGTH, HEADS * HEAD), torch.ones(SEQUENCES, LENGTH, dtype=torch.long)
    meter = flopledger.UtilizationMeter(model, warm_up_steps=2, read_masks=True)
    for _ in range(steps):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        with meter.step():
            model(x, attention_mask=mask).sum().backward()
        torch.cuda.set_sync_debug_mode("default")
    key = next(iter(meter._costs.cost_by_key))
    reader = PaddingMasks(model)
    read = reader.read(key, (x,), {"attention_mask": mask})
    assert read is not None
    (one,) = read._counts
    early = read.are_there
    read.wait()
    late = read.are_there, [tuple(each)[:3] for each in read.pairs()]
    again = reader.read(key, (x,), {"attention_mask": mask})
    assert again is not None
    answer = {
        "found": asdict(meter.summary()),
        "pinned": one.kept.is_pinned(),
        "early": early,
        "late": late,
        "same_event": again._counts[0].copied is one.copied,
        "side_stream": _on_a_side_stream(model, x, mask),
    }
    print(json.dumps(answer))


def _on_a_side_stream(model: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor) -> list[object]:
    """Of a step whose forward pass runs on a stream that its end does not wait for: how many steps are complete as soon
    as that end is; and whether the numbers are there after all are waited for."""
    meter = flopledger.UtilizationMeter(model, warm_up_steps=0, read_masks=True, watch=False)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with meter.step(), torch.cuda.stream(side):
        for _ in range(4):
            x = x + 1
        model(x, attention_mask=mask)
    torch.cuda.current_stream().synchronize()
    early = meter.window().steps
    found = meter.summary()
    return [early, found.steps, found.mask_exact_flop_per_step is not None]


if __name__ == "__main__":
    main(int(sys.argv[1]))
