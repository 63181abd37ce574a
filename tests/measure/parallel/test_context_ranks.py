"""Sequences divided over ranks: hand-derived sizes, and what two real processes over gloo executed and computed."""

import json
import math
import multiprocessing
from collections import Counter

import pytest
import torch

from analysis.parallel.rank_grid import Coordinates, grid_of, parse_plan, parse_sizes
from analysis.parallel.rank_trace import is_causal
from measure.parallel.context import is_balanced, sequence_part
from measure.parallel.rank_trace import RankStep, trace_single
from tests.measure.parallel.ledgers import traced_ledger
from tests.support.nets.divided_nets import (
    CASES,
    HEADS,
    MIXED,
    SAMPLES,
    TOKENS,
    WIDTH,
    AttentionNet,
    HeadsNet,
    run_context_rank,
    run_mixed_rank,
)
from tests.support.nets.parallel_nets import executed_flop, executed_messages


class Table(AttentionNet):
    """And a product that does not follow the sequence."""

    def forward(self, x):
        return super().forward(x) + (self.head.weight @ self.head.weight.T).sum()


ATTENTION = 2 * 2 * TOKENS * TOKENS * WIDTH
"""Forward FLOP of a sample's attention: scores and values, each 2 · tokens² · width over all heads."""

LINEAR = 2 * TOKENS * WIDTH * (3 * WIDTH + WIDTH)
"""Forward FLOP of a sample's projections in a block."""

HEAD = 2 * TOKENS * WIDTH * 3


def inputs(samples, parts=1):
    return torch.ones(samples, TOKENS // parts, WIDTH)


def found(text, batch, causal=True, balanced=True, replicas="ddp", net=AttentionNet):
    """The ledger of a net over these axes."""
    grid = grid_of(parse_sizes(text), batch, replicas=replicas)
    return traced_ledger(grid, lambda: net(causal), batch, inputs, balanced=balanced, causal=causal)


def test_each_rank_runs_its_tokens_and_its_share_of_attention():
    """Two ranks, one sample. Balanced, a rank attends its own half to itself, and half of that again to the other's."""
    ledger = found("cp=2", 1)
    own, other = (TOKENS // 2) ** 2, (TOKENS // 2) ** 2 // 2
    attention = 2 * 2 * (own + other) * WIDTH
    for place in range(2):
        work = ledger.works[Coordinates(0, 0, 0, place)]
        assert work.total("forward") == 2 * (LINEAR // 2 + attention) + HEAD // 2
        # the first block's input needs no gradient: one of the two products of its projections in
        assert work.total("backward") == 2 * work.total("forward") - 2 * TOKENS // 2 * WIDTH * 3 * WIDTH
        sums = {(each.kind, each.group, each.size): (each.calls, each.nbytes) for each in work.collectives}
        keys = 2 * TOKENS // 2 * WIDTH * 4  # bytes of a rank's keys and values
        parameters = 2 * (WIDTH * 4 * WIDTH + 4 * WIDTH) + 3 * WIDTH + 3
        assert sums == {
            ("all_gather", "cp", 2): (4, 4 * 2 * keys),  # both blocks, forward and backward: those of both ranks
            ("all_to_all", "cp", 2): (4, 4 * keys),  # both blocks, twice: their gradients, to the next rank
            ("all_reduce", "cp", 2): (1, 4 * parameters),
        }
        assert work.parameters == parameters
    blocks = 2 * 2 * ((TOKENS // 2) ** 2) * WIDTH  # one of the four is hidden
    assert {(each.module, each.phase): each.flop for each in ledger.skips} == {
        (f"layers.{layer}", phase): times * blocks
        for layer in range(2)
        for phase, times in (("forward", 1), ("backward", 2))
    }
    assert ledger.single_flop == 3 * (2 * (LINEAR + ATTENTION) + HEAD) - 2 * TOKENS * WIDTH * 3 * WIDTH
    assert (ledger.unexplained_flop, ledger.replicated_flop) == (0, 0)


def test_parts_in_order_give_the_last_rank_most_of_causal_attention():
    """Rank r of three attends to r + 1 of three blocks."""
    ledger = found("cp=4", 1, balanced=False)
    attention = [
        sum(
            flop for (_, _, kind), flop in ledger.works[Coordinates(0, 0, 0, place)].flop.items() if kind == "attention"
        )
        for place in range(4)
    ]
    block = 2 * 3 * 2 * 2 * (TOKENS // 4) ** 2 * WIDTH
    assert attention == [block, 2 * block, 3 * block, 4 * block]
    assert ledger.unexplained_flop == 0


def executed_attention(rows):
    """Model FLOP of the fused attention that ran: rows of queries × keys × width, twice two products, backward four."""
    total = 0
    for name, shapes in rows:
        if name.startswith("aten::_scaled_dot_product_flash_attention_for_cpu"):
            backward = name.endswith("backward")
            query, key = shapes[1:3] if backward else shapes[:2]
            total += (8 if backward else 4) * math.prod(query) * key[-2]
    return total


@pytest.mark.cluster
def test_what_real_processes_execute_and_compute_is_what_is_predicted(tmp_path):
    """Calls, bytes and FLOP of both ranks by torch.profiler, and gradients of one process with the whole sequences."""
    torch.multiprocessing.spawn(run_context_rank, (2, str(tmp_path)), nprocs=2)
    check_ranks(tmp_path, 2)


def check_ranks(folder, world):
    for name, (causal, balanced) in CASES.items():
        ledger = found(f"cp={world}", 2, causal, balanced)
        for rank in range(world):
            rows = json.loads((folder / f"{name}-{rank}.json").read_text())
            work = ledger.works[ledger.grid.coordinates(rank)]
            predicted = Counter()
            for each in work.collectives:
                if each.kind != "all_reduce":  # the step has no replicas
                    predicted[each.kind, "calls"] += each.calls
                    predicted[each.kind, "bytes"] += each.nbytes
            assert executed_messages(rows, world) == dict(predicted)
            assert executed_flop(rows) + executed_attention(rows) == work.total("forward", "backward")
            assert json.loads((folder / f"{name}-{rank}.error").read_text()) < 1e-5


IMPORTED = ["tests.support.nets.divided_nets", "measure.parallel.pipeline", "torch.distributed.pipelining"]
"""What is imported once and not by each of eight processes."""


def mixed_ledger(plan):
    """The ledger of HeadsNet under a plan that is trained."""
    grid = parse_plan(plan)
    ring = grid.cp > 1
    return traced_ledger(grid, HeadsNet, SAMPLES, inputs, plan=HeadsNet().tp_plan, balanced=ring, causal=ring)


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
            work = ledger.works[ledger.grid.coordinates(rank)]
            flop = executed_flop(rows) + executed_attention(rows)
            assert flop == work.total("forward", "backward"), (plan, rank)
            # as `executed_messages` has what ran
            found = Counter()
            for each in work.collectives:
                found[each.kind, "calls"] += each.calls
                found[each.kind, "bytes"] += each.nbytes
            assert executed_messages(rows) == dict(found), (plan, rank)
            run[plan] += flop
    head = 3 * HEAD * SAMPLES
    hidden = 3 * SAMPLES * 2 * 2 * 2 * 16 * (TOKENS // 2) ** 2  # one of four blocks of both layers, 16 numbers a token
    for plan, ledger in ledgers.items():
        assert ledger.unexplained_flop == 0
        expected = ledger.single_flop + ("tp" in plan) * head - ("cp" in plan) * hidden
        assert run[plan] == ledger.sum_flop == expected, plan


def test_parts_of_a_sequence():
    """Eight tokens over two ranks: chunks 0 and 3 of four, and 1 and 2; or halves."""
    tokens = torch.arange(8)[None]
    assert [sequence_part(tokens, rank, 2, True).tolist() for rank in range(2)] == [[[0, 1, 6, 7]], [[2, 3, 4, 5]]]
    assert [sequence_part(tokens, rank, 2, False).tolist() for rank in range(2)] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    assert sequence_part(None, 0, 2, True) is None
    assert is_balanced(8, 2, True)
    assert not is_balanced(8, 2, False)
    assert not is_balanced(6, 2, True), "three tokens a rank are no two chunks"


class Masked(AttentionNet):
    """Attention with a mask of its own."""

    def forward(self, x):
        x = self.layers[0].out(x)
        heads = x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
        mask = torch.ones(TOKENS, TOKENS)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)


def test_attention_that_the_ring_does_not_run_is_refused():
    inputs = (torch.ones(2, TOKENS, WIDTH),)
    with pytest.raises(ValueError, match="expected attention by scaled_dot_product_attention, got none in one kernel"):
        is_causal(trace_single(RankStep(lambda: torch.nn.Linear(WIDTH, 2), inputs)))
    with pytest.raises(ValueError, match="causal mask everywhere or none, got attention with a mask that is not known"):
        is_causal(trace_single(RankStep(Masked, inputs)))
    assert is_causal(trace_single(RankStep(AttentionNet, inputs)))
    assert not is_causal(trace_single(RankStep(lambda: AttentionNet(False), inputs)))


def test_a_product_that_does_not_follow_the_sequence_is_replicated_over_the_context_axis():
    ledger = found("dp=2,cp=2", 2, net=Table)
    once = 2 * 3 * WIDTH * 3
    named = {(each.phase, each.axis, each.times): each.flop for each in ledger.replicas if each.module == ""}
    assert named == {
        ("forward", "cp", 2): 2 * once,
        ("backward", "cp", 2): 2 * 2 * once,
        ("forward", "dp", 2): once,
        ("backward", "dp", 2): 2 * once,
    }
    assert ledger.unexplained_flop == 0
