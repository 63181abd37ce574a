"""Nets whose heads, stages or experts are divided over ranks, and their steps on a real rank: a process over gloo."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.nets.parallel_nets import profiled

WIDTH, TOKENS = 8, 16


class Heads(nn.Module):
    """x + out(causal attention of q, k and v of x): two heads of queries for each of keys, sizes written out."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, width, bias=False) for width in (16, 8, 8))
        self.out = nn.Linear(16, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (each(x).view(batch, tokens, -1, 4).transpose(1, 2) for each in (self.q, self.k, self.v))
        groups = q.shape[1] // k.shape[1]
        k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return x + self.out(found.reshape(batch, tokens, q.shape[1] * 4))


class HeadsNet(nn.Module):
    """Two blocks of Heads and a head, with a plan of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Heads() for _ in range(2))
        self.head = nn.Linear(WIDTH, 3)
        self.tp_plan = {f"layers.*.{name}": "colwise" for name in "qkv"} | {"layers.*.out": "rowwise"}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


MIXED = {
    4: ("ddp=2,pp=2,m=2", "fsdp=2,pp=2,m=2", "tp=2,pp=2,m=2", "ddp=2,tp=2", "fsdp=2,tp=2"),
    8: ("ddp=2,tp=2,pp=2,m=2", "fsdp=2,tp=2,pp=2,m=2"),
}
"""Ranks → plans of two axes, and of three."""

SAMPLES = 8
"""Of all ranks together."""


def run_mixed_rank(rank: int, world: int, folder: str) -> None:
    """Two steps of HeadsNet under each plan of so many ranks on this process: mixed-RANK.json, plan → parameter → how
    far its gradient of the first step is from that of one process; and PLAN-RANK.json, the second, profiled."""
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    torch.manual_seed(0)
    net, inputs, weight = HeadsNet(), torch.randn(SAMPLES, TOKENS, WIDTH), torch.randn(SAMPLES, TOKENS, 3)
    _weighted_mean(net(inputs), weight).backward()
    alone = {name: parameter.grad for name, parameter in net.named_parameters()}
    errors = {}
    for plan in MIXED[world]:
        net.zero_grad()
        model, step = _mixed_step(plan, copy.deepcopy(net), inputs, weight)
        step()
        found = {name.removeprefix("module."): _whole(each.grad) for name, each in model.named_parameters()}
        errors[plan] = {name: _distance(each, alone[name]) for name, each in found.items()}
        profiled(step, Path(folder) / f"{plan}-{rank}.json")
    (Path(folder) / f"mixed-{rank}.json").write_text(json.dumps(errors))
    torch.distributed.destroy_process_group()


def _mixed_step(
    plan: str, net: nn.Module, inputs: torch.Tensor, weight: torch.Tensor
) -> tuple[nn.Module, Callable[[], object]]:
    """What this rank trains, and its step."""
    from analysis.parallel.rank_grid import parse_plan
    from measure.parallel.pipeline import pipeline_stage, split_model
    from measure.parallel.real_group import rank_mesh

    grid = parse_plan(plan)
    mesh = rank_mesh(grid, torch.device("cpu"))
    inputs, weight = (each.chunk(grid.dp)[mesh["dp"].get_local_rank()] for each in (inputs, weight))
    if grid.pp > 1:
        stage = pipeline_stage(net, (inputs,), ["layers.1"], grid, _weighted_mean, torch.device("cpu"), None, mesh)
        return stage.model, lambda: stage.run((inputs,), weight)
    model = split_model(net, grid, mesh)
    return model, lambda: _weighted_mean(model(inputs), weight).backward()


def _weighted_mean(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A loss in which each output counts otherwise, so that one in the wrong place shows."""
    return (output * target).mean()


def _whole(gradient: Any) -> torch.Tensor:
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def _distance(found: torch.Tensor, expected: Any) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


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

    from measure.parallel.styles import apply_experts, own_plan

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("ep", "tp"))
    torch.manual_seed(0)
    model = mixture()
    apply_experts(model, mesh["ep"], mesh["tp"], own_plan(model, "ep_plan"), strict=False)
    own = tokens(world)[rank : rank + 1]

    def step() -> Any:
        logits = model(own).logits
        logits.sum().backward()
        return logits

    torch.save(step().detach(), Path(folder) / f"experts-{rank}.pt")
    profiled(step, Path(folder) / f"experts-{rank}.json")
    torch.distributed.destroy_process_group()


def run_trained_experts(rank: int, world: int, folder: str) -> None:
    """A step of a mixture on this process, one of replicas of which two have the same experts each, also with split
    modules: trained-RANK.json, plan → parameter → how far its gradient is from that of one process."""
    from analysis.parallel.rank_grid import parse_plan
    from measure.parallel.pipeline import split_model
    from measure.parallel.real_group import rank_mesh

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    errors = {}
    for plan in ("ddp=4,ep=2", "ddp=2,tp=2,ep=2"):
        torch.manual_seed(0)
        model = mixture()
        weight = torch.randn(4, TOKENS, SIZES["vocab_size"])
        _weighted_mean(model(tokens(4)).logits, weight).backward()
        alone = {name: each.grad.clone() for name, each in model.named_parameters()}
        model.zero_grad()
        grid = parse_plan(plan)
        mesh = rank_mesh(grid, torch.device("cpu"))
        split = split_model(model, grid, mesh)
        own, part = (each.chunk(grid.dp)[mesh["dp"].get_local_rank()] for each in (tokens(4), weight))
        _weighted_mean(_whole(split(own).logits), part).backward()
        named = {name.removeprefix("module."): each.grad for name, each in split.named_parameters()}
        errors[plan] = {name: _distance(_whole(each), alone[name]) for name, each in named.items()}
    (Path(folder) / f"trained-{rank}.json").write_text(json.dumps(errors))
    torch.distributed.destroy_process_group()
