"""Steps of several axes at once: what four and eight real processes over gloo executed and computed."""

import json
import math
import multiprocessing
from collections import Counter

import pytest
import torch

from analysis.parallel.rank_grid import parse_plan
from tests.measure.parallel.ledgers import traced_ledger
from tests.support.nets.divided_nets import MIXED, SAMPLES, TOKENS, WIDTH, HeadsNet, run_mixed_rank
from tests.support.nets.parallel_nets import executed_flop, executed_messages


def executed_attention(rows):
    """Model FLOP of the fused attention that ran: rows of queries × keys × width, twice two products, backward four."""
    total = 0
    for name, shapes in rows:
        if name.startswith("aten::_scaled_dot_product_flash_attention_for_cpu"):
            backward = name.endswith("backward")
            query, key = shapes[1:3] if backward else shapes[:2]
            total += (8 if backward else 4) * math.prod(query) * key[-2]
    return total


IMPORTED = ["tests.support.nets.divided_nets", "measure.parallel.pipeline", "torch.distributed.pipelining"]
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
    head = 3 * 2 * TOKENS * WIDTH * 3 * SAMPLES
    for plan, ledger in ledgers.items():
        assert ledger.unexplained_flop == 0
        expected = ledger.single_flop + ("tp" in plan) * head
        assert run[plan] == ledger.sum_flop == expected, plan
