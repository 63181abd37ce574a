"""Definition, law, known answer: experts divided over ranks by hand, and what real processes over gloo executed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.parallel.rank_grid import Coordinates, grid_of, parse_sizes
from measure.parallel.styles import own_plan
from tests.measure.parallel.ledgers import traced_ledger
from tests.support.nets.parallel_nets import distance, executed_flop, profiled, weighted_mean, whole

TOKENS = 16

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
        weighted_mean(model(tokens(4)).logits, weight).backward()
        alone = {name: each.grad.clone() for name, each in model.named_parameters()}
        model.zero_grad()
        grid = parse_plan(plan)
        mesh = rank_mesh(grid, torch.device("cpu"))
        split = split_model(model, grid, mesh)
        own, part = (each.chunk(grid.dp)[mesh["dp"].get_local_rank()] for each in (tokens(4), weight))
        weighted_mean(whole(split(own).logits), part).backward()
        named = {name.removeprefix("module."): each.grad for name, each in split.named_parameters()}
        errors[plan] = {name: distance(whole(each), alone[name]) for name, each in named.items()}
    (Path(folder) / f"trained-{rank}.json").write_text(json.dumps(errors))
    torch.distributed.destroy_process_group()


pytest.importorskip("transformers.distributed.expert_parallel")

WIDTH, BETWEEN, LAYERS = SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["num_hidden_layers"]
EXPERTS, CHOSEN = SIZES["num_local_experts"], SIZES["num_experts_per_tok"]
WEIGHTS = 3 * WIDTH * BETWEEN
"""Of an expert: gate, up and down."""


def found(text, batch):
    """The ledger of the mixture over these axes."""
    grid = grid_of(parse_sizes(text), batch)
    with torch.device("meta"):
        experts = {"experts": own_plan(mixture(), "ep_plan"), "expert_ranks": grid.ep}
    return traced_ledger(grid, mixture, batch, tokens, **experts)


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="an older torch has no shapes of grouped products in fp32")
def test_each_rank_has_its_experts_and_exchanges_its_tokens():
    """Two ranks, a sample each: 16 tokens, each to two experts, are 32 rows of 32 numbers, there and back."""
    ledger = found("dp=2,ep=2", 2)
    work = ledger.loads[Coordinates(0, 0, 0)]
    alone = found("dp=2", 2).loads[Coordinates(0, 0, 0)]
    assert alone.parameters - work.parameters == LAYERS * EXPERTS // 2 * WEIGHTS
    assert work.total("forward", "backward") == alone.total("forward", "backward")
    rows = TOKENS * CHOSEN
    sums = {(each.kind, each.group, each.size): (each.calls, each.nbytes) for each in work.collectives}
    assert sums["all_to_all", "ep", 2] == (
        LAYERS * (4 + 1),  # to the experts and back, and both backward; and how many come
        LAYERS * (4 * rows * WIDTH * 4 + EXPERTS * 8),
    )
    dense = work.parameters - LAYERS * EXPERTS // 2 * WEIGHTS
    assert sums["all_reduce", "dp", 2] == (1, 4 * dense), "each expert is on one rank"
    assert ("all_reduce", "experts", 1) not in sums
    assert ledger.unexplained_flop == 0
    assert ledger.sum_flop == ledger.single_flop + ledger.replicated_flop


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="an older torch has no shapes of grouped products in fp32")
def test_experts_that_several_ranks_have_are_reduced_among_these():
    """dp=4 with ep=2: two ranks of four have the same experts."""
    work = found("dp=4,ep=2", 4).loads[Coordinates(0, 3, 0)]
    sums = {(each.kind, each.group, each.size): (each.calls, each.nbytes) for each in work.collectives}
    tensors = LAYERS * 2  # gate and up are one
    assert sums["all_reduce", "experts", 2] == (tensors, 4 * LAYERS * EXPERTS // 2 * WEIGHTS)


@pytest.mark.cluster
def test_products_of_two_real_processes_add_up_however_tokens_are_routed(tmp_path):
    """Rows are routed by the model's own router, unevenly; each row's product is run once, on one of both ranks."""
    torch.multiprocessing.spawn(run_expert_rank, (2, str(tmp_path)), nprocs=2)
    ledger = found("dp=2,ep=2", 2)
    rows = [json.loads((tmp_path / f"experts-{rank}.json").read_text()) for rank in range(2)]
    products = Counter()
    for work in ledger.loads.values():
        for (_, _, kind), flop in work.flop.items():
            products[kind] += flop
    assert sum(map(executed_flop, rows)) == products["matmul"]
    given = [[shapes for name, shapes in each if name == "c10d::alltoall_base_"] for each in rows]
    predicted = [each for each in ledger.loads[Coordinates(0, 0, 0)].collectives if each.kind == "all_to_all"]
    assert [len(each) for each in given] == [predicted[0].calls] * 2
    torch.manual_seed(0)
    model = mixture()
    for rank in range(2):
        logits = torch.load(tmp_path / f"experts-{rank}.pt")
        torch.testing.assert_close(logits, model(tokens(2)[rank : rank + 1]).logits.detach(), atol=1e-5, rtol=1e-4)


@pytest.mark.cluster
def test_experts_that_two_real_processes_share_have_the_gradients_of_one(tmp_path):
    """Four ranks, half of the experts each: of all parameters, divided or not, the gradient is that of one process."""
    torch.multiprocessing.spawn(run_trained_experts, (4, str(tmp_path)), nprocs=4)
    names = {name for name, _ in mixture().named_parameters()}
    for rank in range(4):
        errors = json.loads((tmp_path / f"trained-{rank}.json").read_text())
        assert set(errors) == {"ddp=4,ep=2", "ddp=2,tp=2,ep=2"}
        for plan, found in errors.items():
            assert set(found) == names
            assert max(found.values()) < 1e-4, (plan, rank, found)
