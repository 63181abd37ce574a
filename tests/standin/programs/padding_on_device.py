"""Run as a program on a stand-in device: a loop whose batches have an `attention_mask` on the device. Prints JSON.

Argument: steps. torch raises where anything in a step waits for the device. A kernel of the stand-in computes nothing,
so that what is read of the mask is any number.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace

import torch

import flopledger
from measure.meter.masks import PaddingMasks

SEQUENCES, LENGTH, HEADS, HEAD = 2, 16, 2, 8


class Attention(torch.nn.Module):
    """Attention to all keys that padding leaves, which says so as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.is_causal, self.config = False, SimpleNamespace()
        self.project = torch.nn.Linear(HEADS * HEAD, 3 * HEADS * HEAD)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(x).view(SEQUENCES, LENGTH, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        kept = attention_mask.bool()[:, None, None, :].expand(SEQUENCES, 1, LENGTH, LENGTH)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, kept)


def main(steps: int) -> None:
    with torch.device("cuda"):
        model = Attention()
        x, mask = torch.zeros(SEQUENCES, LENGTH, HEADS * HEAD), torch.ones(SEQUENCES, LENGTH, dtype=torch.long)
    meter = flopledger.UtilizationMeter(model, warm_up_steps=2, read_masks=True)
    for _ in range(steps):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        with meter.step():
            model(x, attention_mask=mask).sum().backward()
        torch.cuda.set_sync_debug_mode("default")
    key = next(iter(meter._costs.cost_by_key))
    read = PaddingMasks(model).read(key, (x,), {"attention_mask": mask})
    assert read is not None
    (one,) = read._counts
    early = len(list(read.pairs()))
    torch.cuda.synchronize()
    late = [tuple(each)[:3] for each in read.pairs()]
    answer = {"found": asdict(meter.summary()), "pinned": one.kept.is_pinned(), "early": early, "late": late}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]))
