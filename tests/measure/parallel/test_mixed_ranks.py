"""Law, known answer: steps of several axes at once, as four and eight real processes over gloo executed them."""

import copy
import json
import math
import multiprocessing
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from analysis.parallel.rank_grid import parse_plan
from tests.measure.parallel.ledgers import traced_ledger
from tests.support.nets.parallel_nets import distance, executed_flop, executed_messages, profiled, weighted_mean, whole

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
    weighted_mean(net(inputs), weight).backward()
    alone = {name: parameter.grad for name, parameter in net.named_parameters()}
    errors = {}
    for plan in MIXED[world]:
        net.zero_grad()
        model, step = _mixed_step(plan, copy.deepcopy(net), inputs, weight)
        step()
        found = {name.removeprefix("module."): whole(each.grad) for name, each in model.named_parameters()}
        errors[plan] = {name: distance(each, alone[name]) for name, each in found.items()}
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
        stage = pipeline_stage(net, (inputs,), ["layers.1"], grid, weighted_mean, torch.device("cpu"), None, mesh)
        return stage.model, lambda: stage.run((inputs,), weight)
    model = split_model(net, grid, mesh)
    return model, lambda: weighted_mean(model(inputs), weight).backward()


def executed_attention(rows):
    """Model FLOP of the fused attention that ran: rows of queries × keys × width, twice two products, backward four."""
    total = 0
    for name, shapes in rows:
        if name.startswith("aten::_scaled_dot_product_flash_attention_for_cpu"):
            backward = name.endswith("backward")
            query, key = shapes[1:3] if backward else shapes[:2]
            total += (8 if backward else 4) * math.prod(query) * key[-2]
    return total


IMPORTED = ["tests.measure.parallel.test_mixed_ranks", "measure.parallel.pipeline", "torch.distributed.pipelining"]
"""What is imported once and not by each of eight processes."""


def mixed_ledger(plan):
    """The ledger of HeadsNet under a plan that is trained."""
    grid = parse_plan(plan)
    return traced_ledger(
        grid, HeadsNet, SAMPLES, lambda samples: torch.ones(samples, TOKENS, WIDTH), plan=HeadsNet().tp_plan
    )


@pytest.mark.cluster
@pytest.mark.parametrize("world", MIXED)
def test_real_processes_have_the_gradients_of_one_and_the_predicted_work_under_two_and_three_axes(tmp_path, world):
    """Two blocks of 5 parameters and a head of 2: each rank has those of its stage, whole ones or its shards. Calls,
    bytes and FLOP of each rank are those of the count; all ranks together run what one device does, and the head,
    which no axis divides but the batch's, on both tensor ranks."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(IMPORTED)
    torch.multiprocessing.start_processes(run_mixed_rank, (world, str(tmp_path)), world, start_method="forkserver")
    ledgers = {plan: mixed_ledger(plan) for plan in MIXED[world]}
    run = Counter()
    for rank in range(world):
        errors = json.loads((tmp_path / f"mixed-{rank}.json").read_text())
        assert set(errors) == set(ledgers)
        for plan, ledger in ledgers.items():
            assert len(errors[plan]) == ([5, 7][rank // (world // 2)] if "pp" in plan else 12), (plan, rank)
            assert max(errors[plan].values()) < 1e-5, (plan, rank, errors[plan])
            rows = json.loads((tmp_path / f"{plan}-{rank}.json").read_text())
            work = ledger.loads[ledger.grid.coordinates(rank)]
            flop = executed_flop(rows) + executed_attention(rows)
            assert flop == work.total("forward", "backward"), (plan, rank)
            # as `executed_messages` has what ran
            found = Counter()
            for each in work.collectives:
                found[each.kind, "calls"] += each.calls
                found[each.kind, "bytes"] += each.nbytes
            assert executed_messages(rows) == dict(found), (plan, rank)
            run[plan] += flop
    head = 3 * 2 * TOKENS * WIDTH * 3 * SAMPLES
    for plan, ledger in ledgers.items():
        assert ledger.unexplained_flop == 0
        expected = ledger.single_flop + ("tp" in plan) * head
        assert run[plan] == ledger.sum_flop == expected, plan
