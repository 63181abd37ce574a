"""The ledger of a net over the ranks of a grid, from the recorded step of each rank that differs."""

from collections.abc import Callable
from typing import Any

import torch

import flopledger
from analysis.parallel.ledger import Ledger, RankRecording, ledger_of
from analysis.parallel.rank_grid import RankGrid
from measure.parallel.rank_trace import RankStep, gradient_buckets, trace_rank, trace_single


def traced_ledger(
    grid: RankGrid, build: Callable[[], torch.nn.Module], batch: int, inputs: Callable[..., torch.Tensor], **step: Any
) -> Ledger:
    """inputs: samples → a tensor. step: what `RankStep` takes besides."""
    share = batch // grid.dp // grid.microbatches
    micro = RankStep(build, (inputs(share),), sharded=grid.replicas == "fsdp" and not grid.shares_stages, **step)
    whole = RankStep(build, (inputs(batch),))
    with torch.device("meta"):
        count = flopledger.count(build(), whole.inputs)
    return ledger_of(
        RankRecording(
            [trace_rank(micro, grid.sizes, place) for place in range(grid.tp)],
            trace_single(micro),
            trace_single(whole),
            count.forward_flop + count.backward_flop,
        ),
        grid,
        gradient_buckets,
    )
