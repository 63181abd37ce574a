"""Nets whose sequences or experts are divided over ranks, and their steps on a real rank: a process over gloo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.nets.parallel_nets import profiled

HEADS, WIDTH, TOKENS = 2, 8, 16


class Attention(nn.Module):
    """x + out(attention(q, k, v of x)), causal or not."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return x + self.out(found.transpose(1, 2).reshape(batch, tokens, WIDTH))


class AttentionNet(nn.Module):
    """Two blocks of attention over features of 8; causal attention unless told."""

    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention(causal) for _ in range(2))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


CASES = {"balanced": (True, True), "in_order": (True, False), "whole": (False, False)}
"""Name → (causal, balanced)."""


def run_context_rank(rank: int, world: int, folder: str) -> None:
    """The second step of each case on this process, profiled: NAME-RANK.json; and NAME-RANK.pt, how far this rank's
    gradients, added over all ranks, are from those of one process with the whole sequences."""
    from torch.distributed.device_mesh import init_device_mesh

    from measure.parallel import ring_attention, sequence_part

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    for name, (causal, balanced) in CASES.items():
        torch.manual_seed(0)
        net, whole = AttentionNet(causal), torch.randn(2, TOKENS, WIDTH)
        weight = torch.randn(2, TOKENS, 3)  # each output counts otherwise, so that a token in the wrong place shows
        (net(whole) * weight).sum().backward()
        alone = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
        net.zero_grad()
        part, own = (sequence_part(each, rank, world, balanced) for each in (whole, weight))

        def step(net: nn.Module = net, part: torch.Tensor = part, own: torch.Tensor = own) -> None:
            (net(part) * own).sum().backward()

        with ring_attention(mesh, balanced, causal):
            step()
            together = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
            for gradient in together:
                torch.distributed.all_reduce(gradient)
            profiled(step, Path(folder) / f"{name}-{rank}.json")
        error = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(alone, together, strict=True))
        (Path(folder) / f"{name}-{rank}.error").write_text(json.dumps(error))
    torch.distributed.destroy_process_group()


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 99,
    "use_cache": False,
}


def mixture() -> torch.nn.Module:
    """Mixtral with random weights, in training mode."""
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(**SIZES)).train()


def tokens(samples: int) -> torch.Tensor:
    """Random tokens, that repeat."""
    return torch.randint(SIZES["vocab_size"], (samples, TOKENS), generator=torch.Generator().manual_seed(3))


def run_expert_rank(rank: int, world: int, folder: str) -> None:
    """The second step of this process, which has a part of the experts and one sample of its own: experts-RANK.json;
    and experts-RANK.pt, the logits of its sample."""
    from torch.distributed.device_mesh import init_device_mesh

    from measure.parallel.experts import apply_experts, own_expert_plan

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("ep", "tp"))
    torch.manual_seed(0)
    model = mixture()
    apply_experts(model, mesh["ep"], mesh["tp"], own_expert_plan(model), strict=False)
    own = tokens(world)[rank : rank + 1]

    def step() -> Any:
        logits = model(own).logits
        logits.sum().backward()
        return logits

    torch.save(step().detach(), Path(folder) / f"experts-{rank}.pt")
    profiled(step, Path(folder) / f"experts-{rank}.json")
    torch.distributed.destroy_process_group()


def run_stage_rank(rank: int, world: int, folder: str) -> None:
    """A step of a pipeline's stage on this process: stage-RANK.json, how far gradients and loss are from those of one
    process with the whole net."""
    from analysis.parallel import RankGrid, stage_starts
    from measure.parallel import RankStep, pipeline_stage, trace_single

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    torch.manual_seed(0)
    net, inputs, weight = AttentionNet(), torch.randn(4, TOKENS, WIDTH), torch.randn(4, TOKENS, 3)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).mean()

    alone = loss(net(inputs), weight)
    alone.backward()
    expected = {
        name: parameter.grad.clone() for name, parameter in net.named_parameters() if parameter.grad is not None
    }
    net.zero_grad()
    starts = stage_starts(trace_single(RankStep(AttentionNet, (inputs[:2],))), world)
    stage = pipeline_stage(net, (inputs,), starts, RankGrid(pp=world, microbatches=2), loss, torch.device("cpu"))
    found = stage.run((inputs,), weight)
    errors = {
        name: float((parameter.grad - expected[name]).abs().max() / expected[name].abs().max())
        for name, parameter in stage.model.named_parameters()
        if parameter.grad is not None
    }
    errors |= {} if found is None else {"loss": abs(float(found - alone.detach()))}
    (Path(folder) / f"stage-{rank}.json").write_text(json.dumps(errors))
    torch.distributed.destroy_process_group()
