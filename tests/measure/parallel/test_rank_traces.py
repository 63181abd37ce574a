"""Definition, law, known answer: a rank's step by hand, and as two real processes over gloo executed it."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from analysis.parallel.rank_grid import Coordinates, grid_of, parse_sizes
from analysis.parallel.rank_trace import LocalParameter, are_alike
from measure.parallel.rank_trace import RankStep, gradient_buckets, trace_rank
from tests.measure.parallel.ledgers import traced_ledger
from tests.support.nets.parallel_nets import BLOCK_PLAN, BlockNet, executed_flop, executed_messages, profiled


def run_rank(rank: int, world: int, folder: str) -> None:
    """Four steps of this process, one of many: the second of BlockNet() under tensor parallelism, the third of
    data-parallel training of BlockNet(256, 3), whose gradients fill more than one bucket, the second of BlockNet() with
    shared weights, and the second of BlockNet(16, 2 · world) in a pipeline with a stage a process. Each has a batch
    of 4 on each rank. Writes what the profiler saw: tensor-RANK.json, …"""
    from torch.distributed.device_mesh import init_device_mesh

    from measure.parallel.styles import apply_plan, shard_weights

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(Path(folder) / "store"), world)  # type: ignore[no-untyped-call]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    split = BlockNet()
    apply_plan(split, init_device_mesh("cpu", (world,)), BLOCK_PLAN, strict=True)
    split(torch.ones(4, 8)).sum().backward()  # DTensor asks once what operations make of whole tensors
    profiled(_training(split), Path(folder) / f"tensor-{rank}.json")
    replica = nn.parallel.DistributedDataParallel(BlockNet(256, 3))
    for _ in range(2):
        replica(torch.ones(4, 8)).sum().backward()
    profiled(_training(replica), Path(folder) / f"data-{rank}.json")
    shards = BlockNet()
    shard_weights(shards, init_device_mesh("cpu", (world,)))
    shards(torch.ones(4, 8)).sum().backward()
    profiled(_training(shards), Path(folder) / f"shards-{rank}.json")
    profiled(_stage_step(rank, world), Path(folder) / f"stages-{rank}.json")
    torch.distributed.destroy_process_group()


def _training(model: nn.Module) -> Callable[[], None]:
    return lambda: model(torch.ones(4, 8)).sum().backward()


def _stage_step(rank: int, world: int) -> Callable[[], object]:
    """A step of one stage of BlockNet(16, 2 · world) by torch.distributed.pipelining, four micro-batches of one. Run
    once before, because stages tell each other the shapes in their first step."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    whole = BlockNet(16, 2 * world)
    own = [*whole.layers[2 * rank : 2 * rank + 2]]
    module = nn.Sequential(*[whole.first][rank:], *own, *[whole.head][: rank - world + 2])
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda output, _target: output.sum())
    inputs = (torch.ones(4, 8),) if rank == 0 else ()
    target = torch.ones(4, 3) if rank == world - 1 else None

    def step() -> object:
        return schedule.step(*inputs, target=target)

    step()
    return step


class Spare(BlockNet):
    """Six rows that no stage multiplies with."""

    def __init__(self):
        super().__init__()
        self.spare = torch.nn.Linear(4, 6, bias=False)


def found(text, batch, build=BlockNet, plan=BLOCK_PLAN, replicas="ddp"):
    """The ledger of a net over these axes."""
    grid = grid_of(parse_sizes(text), batch, replicas=replicas)
    return traced_ledger(grid, build, batch, lambda samples: torch.ones(samples, 8), plan=plan, strict=True)


def test_products_and_messages_of_a_tensor_rank_by_hand():
    """BlockNet(16) at batch 4 over two ranks. A block forward: 2·4·16·32 up and as much down, halved on a rank; its
    backward pass twice that. first has no gradient of the input, head is whole on each rank."""
    work = found("tp=2", 4).loads[Coordinates(0, 0, 0)]
    first, block, head = 2 * 4 * 8 * 16, 2 * 2 * 4 * 16 * 32 // 2, 2 * 4 * 16 * 3
    assert work.total("forward") == first + 2 * block + head
    assert work.total("backward") == first + 2 * (2 * block + head)
    sums = [(each.kind, each.group, each.size, each.calls, each.nbytes) for each in work.collectives]
    # forward after each down, backward after each up: the block's 4 × 16 numbers of 4 bytes
    assert sums == [("all_reduce", "tp", 2, 4, 4 * 4 * 16 * 4)]
    # weights of 16·32 halved, the bias of up halved, that of down whole
    assert work.parameters == 8 * 16 + 16 + 2 * (16 * 32 + 16 + 16) + 16 * 3 + 3
    assert work.state_bytes == 4 * 4 * work.parameters
    # kept: first's output, of each block relu's on the rank's half of 32 and the block's own, the outputs, the loss
    assert work.activation_bytes == 4 * (4 * 16 + 2 * (4 * 16 + 4 * 16) + 4 * 3 + 1)


def test_what_a_rank_does_whole_is_named_and_the_sum_holds():
    """first and head are not in the plan: both ranks run them."""
    ledger = found("dp=2,tp=2", 4)
    assert ledger.unexplained_flop == 0
    first, head = 2 * 4 * 8 * 16, 2 * 4 * 16 * 3
    named = {(each.module, each.phase, each.axis, each.times): each.flop for each in ledger.replicas}
    assert named == {
        ("first", "forward", "tp", 2): first,
        ("first", "backward", "tp", 2): first,
        ("head", "forward", "tp", 2): head,
        ("head", "backward", "tp", 2): 2 * head,
    }
    single = 2 * first + 3 * (head + 2 * 2 * 2 * 4 * 16 * 32) - 0
    assert ledger.single_flop == single
    assert ledger.sum_flop == single + 2 * first + 3 * head


UNEVEN = {**BLOCK_PLAN, "head": "colwise_gather_output"}
"""The head's three outputs over two ranks: two and one."""


class Pairs(BlockNet):
    """Each sample times each other one: a product that two replicas do a part of."""

    def forward(self, x):
        y = super().forward(x)
        return y @ y.T


def test_products_between_samples_of_different_replicas_are_missing_and_not_explained_away():
    """4 samples of 3 numbers: 2·4·4·3 FLOP; two replicas of 2 samples do 2 · 2·2·2·3. Backward twice as much."""
    assert found("dp=2", 4, Pairs, {}).unexplained_flop == 3 * (2 * 2 * 2 * 2 * 3 - 2 * 4 * 4 * 3)


def test_uneven_shards_are_counted_apart_and_add_up():
    ledger = found("tp=2", 4, BlockNet, UNEVEN)
    one, other = (ledger.loads[Coordinates(0, 0, place)] for place in range(2))
    assert one.parameters - other.parameters == 16 + 1
    assert one.total("forward") - other.total("forward") == 2 * 4 * 16
    assert {each.module for each in ledger.replicas} == {"first"}
    assert ledger.unexplained_flop == 0


def test_shared_weights_are_gathered_twice_and_their_gradients_scattered_once():
    """BlockNet over dp=4 × tp=2: layers are gathered forward and backward, first and head once, as they are kept.

    A tensor rank has 16·16 + 16 + 16·16 + 16 numbers of a block, and 8·16 + 16 + 4·16 + 4 of first and head, whose
    three outputs are padded to four rows. Each multiple of 4, so that gathered buffers are as large."""
    ledger = found("dp=4,tp=2", 8, replicas="fsdp")
    block, ends = 2 * 16 * 16 + 2 * 16, 8 * 16 + 16 + 4 * 16 + 4
    sums = {
        (each.kind, each.group): (each.calls, each.nbytes) for each in ledger.loads[Coordinates(0, 0, 0)].collectives
    }
    assert sums == {
        ("all_gather", "dp"): (5, 4 * (2 * 2 * block + ends)),
        ("reduce_scatter", "dp"): (3, 4 * (2 * block + ends)),
        ("all_reduce", "tp"): (4, 4 * 2 * 16 * 4),
    }
    unshared = found("dp=4,tp=2", 8).loads[Coordinates(0, 0, 0)]
    assert ledger.loads[Coordinates(0, 0, 0)].activation_bytes == unshared.activation_bytes  # no gathered weights
    held = [ledger.loads[Coordinates(0, data, 0)].parameters for data in range(4)]
    assert held == [(2 * block + 8 * 16 + 16) // 4 + rows * (16 + 1) for rows in (1, 1, 1, 0)]
    assert ledger.unexplained_flop == 0


def test_replicas_of_split_modules_reduce_each_layer_and_the_rest_at_once():
    """BlockNet over dp=2 × tp=2. A tensor rank has 16·16 + 16 + 16·16 + 16 numbers of each of both blocks, and
    8·16 + 16 + 3·16 + 3 of first and head. With a pipeline a stage is one: first and a block, or a block and head."""
    block, first, head = 2 * 16 * 16 + 2 * 16, 8 * 16 + 16, 3 * 16 + 3

    def reduced(text, stage=0):
        collectives = found(text, 4).loads[Coordinates(stage, 0, 0)].collectives
        return [(each.calls, each.nbytes) for each in collectives if each.group == "dp"]

    assert reduced("dp=2,tp=2") == [(3, 4 * (2 * block + first + head))]
    assert [reduced("dp=2,tp=2,pp=2", stage) for stage in range(2)] == [
        [(1, 4 * (block + first))],
        [(1, 4 * (block + head))],
    ]


def test_a_replica_s_part_of_shared_weights_is_what_that_rank_has():
    sizes, step = {"pp": 1, "dp": 4, "tp": 2}, RankStep(BlockNet, (torch.ones(2, 8),), BLOCK_PLAN, True, True)
    first, last = trace_rank(step, sizes, 0), trace_rank(step, sizes, 6)
    assert [each.part(3, 4) for each in first.parameters] == list(last.parameters)


def test_a_weight_of_two_stages_is_held_by_both_and_its_gradient_reduced_once():
    def build():
        net = BlockNet(8, 2)
        net.head = torch.nn.Linear(8, 8, bias=False)
        net.head.weight = net.first.weight
        return net

    ledger = found("pp=2", 2, build, {})
    for stage in range(2):
        sums = {each.kind: (each.calls, each.nbytes) for each in ledger.loads[Coordinates(stage, 0, 0)].collectives}
        line = 2, 2 * 8 * 4
        assert sums == {"all_reduce": (1, 4 * 8 * 8), "send": line, "receive": line}
    assert ledger.unexplained_flop == 0
    shared = found("dp=3,pp=2", 6, build, {}, replicas="fsdp")  # its 8 rows are 3, 3 and 2
    for place in shared.grid.places():
        (line,) = [each for each in shared.loads[place].collectives if (each.kind, each.group) == ("all_reduce", "pp")]
        assert (line.size, line.calls, line.nbytes) == (2, 1, 4 * 8 * (3, 3, 2)[place.dp])


def test_stages_have_each_layer_once_and_send_what_the_next_one_reads():
    """Four blocks over two stages, two micro-batches of one sample."""

    def build():
        return BlockNet(16, 4)

    ledger = found("pp=2", 2, build, {})
    first, second = ledger.loads[Coordinates(0, 0, 0)], ledger.loads[Coordinates(1, 0, 0)]
    product, ends = 2 * 2 * 16 * 32, (2 * 8 * 16, 2 * 16 * 3)  # of one sample: a block, first and head
    assert first.total("forward") == 2 * (ends[0] + 2 * product)
    assert second.total("forward") == 2 * (ends[1] + 2 * product)
    assert ledger.unexplained_flop == 0
    # of one micro-batch: first's output and two numbers 32 and 16 of each block; received 16, two of these, 3 and 1
    assert first.activation_bytes == 2 * 4 * (16 + 2 * (32 + 16))
    assert second.activation_bytes == 1 * 4 * (16 + 2 * (32 + 16) + 3 + 1)
    line = 2, 2 * 16 * 4  # two micro-batches of 16 numbers of 4 bytes
    for work in (first, second):
        sent = {each.kind: (each.calls, each.nbytes) for each in work.collectives}
        assert sent == {"send": line, "receive": line}
    assert ledger.grid.bubble == pytest.approx(1 / 3)


def test_buckets_of_gradients_close_once_they_are_full():
    """Of 600,000 bytes each: two are over 1 MiB, then 44 over 25 MiB (43.7), and the 14 that are left."""
    gradients = [LocalParameter((str(each),), (150_000,), "float32", 600_000, True) for each in range(60)]
    assert gradient_buckets(gradients) == [2 * 600_000, 44 * 600_000, 14 * 600_000]
    assert gradient_buckets([]) == []


@pytest.mark.cluster
def test_what_real_processes_execute_is_what_is_predicted(tmp_path):
    """Calls, bytes and FLOP of both ranks, under tensor and data parallelism, with shared weights and in a pipeline, as
    torch.profiler saw them."""
    torch.multiprocessing.spawn(run_rank, (2, str(tmp_path)), nprocs=2)
    cases = {
        "tensor": found("tp=2", 4),
        "data": found("dp=2", 8, lambda: BlockNet(256, 3), {}),
        "shards": found("dp=2", 8, BlockNet, {}, "fsdp"),
        "stages": found("pp=2", 4, lambda: BlockNet(16, 4), {}),
    }
    for name, ledger in cases.items():
        for rank in range(2):
            rows = json.loads((tmp_path / f"{name}-{rank}.json").read_text())
            work = ledger.loads[ledger.grid.coordinates(rank)]
            predicted = Counter()
            for each in work.collectives:
                predicted[each.kind, "calls"] += each.calls
                predicted[each.kind, "bytes"] += each.nbytes
            assert executed_flop(rows) == work.total("forward", "backward")
            assert dict(predicted) == executed_messages(rows)
        assert min(calls for (_, what), calls in predicted.items() if what == "calls") > 1


def test_a_weight_that_gets_no_gradient_is_gathered_with_its_stage_and_not_scattered():
    """It is with the last stage: 4 · 6 numbers."""
    ledger = found("dp=2,pp=2", 4, Spare, {}, "fsdp")
    for stage, more in enumerate((0, 4 * 4 * 6)):
        sums = {each.kind: each.nbytes for each in ledger.loads[Coordinates(stage, 0, 0)].collectives}
        assert sums["all_gather"] - sums["reduce_scatter"] == more


def test_first_and_last_rank_tell_whether_all_do_the_same():
    sizes, step = {"pp": 1, "dp": 1, "tp": 4}, RankStep(BlockNet, (torch.ones(2, 8),), BLOCK_PLAN)
    uneven = RankStep(BlockNet, (torch.ones(2, 8),), UNEVEN)
    assert are_alike(trace_rank(step, sizes, 0), trace_rank(step, sizes, 3))
    assert not are_alike(trace_rank(uneven, sizes, 0), trace_rank(uneven, sizes, 3))
