"""The law of the batch by counter, phase and operator: exact, and the operator that breaks it is named."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptflops import get_model_complexity_info
from torch import nn

from cleaning.counts.pipeline import FLOP_COUNTS, clean_records
from cleaning.reconcile.batch_law import LEFT_OUT, batch_laws
from measure.counters.adapters import fvcore, ptflops_aten, pthflops
from results.records.cell import Run
from results.records.counts import BatchLaw, FlopCount
from tests.support.oracles.module_walk import build

RUN = Run(model="net", batch_size=64, device="cpu", cell_id="c", attempt=1, sitting="s", status="ok")


def series(counts: dict[int, int], operator: str = "", **more: object) -> list[FlopCount]:
    values = {"cell_id": "c", "attempt": 1, "counter": "fvcore", "workload": "net", "phase": "forward"}
    values |= {"operator": operator, "native_unit": "flop", **more}
    return [
        FlopCount(**{**values, "batch_size": size, "native_value": flop, "flop": flop}) for size, flop in counts.items()
    ]


def line(slope: int, constant: int, *batches: int) -> dict[int, int]:
    return {batch: slope * batch + constant for batch in batches}


def laws(counts: list[FlopCount]) -> dict[tuple[str, str, str], BatchLaw]:
    return {(law.counter, law.phase, law.operator): law for law in batch_laws(RUN, counts)}


def counted(adapter, model: nn.Module, inputs: dict[int, torch.Tensor]) -> list[FlopCount]:
    """A counter's rows at several batches, as a cell keeps them."""
    rows = [
        row
        for size, tensor in inputs.items()
        for row in adapter.count(model, (tensor,), workload="net", batch_size=size)
    ]
    return [dataclasses.replace(row, cell_id="c", attempt=1) for row in rows]


def test_a_law_that_holds_has_its_slope_and_constant() -> None:
    (total, conv) = batch_laws(RUN, series(line(30, 7, 1, 2, 16)) + series(line(20, 7, 1, 2, 16), "conv"))
    assert (total.operator, total.slope_flop, total.constant_flop, total.holds) == ("", 30, 7, True)
    assert total.batches == (1, 2, 16)
    assert total.reason == "note: the constant is of conv (7)"
    assert (conv.operator, conv.slope_flop, conv.constant_flop, conv.holds, conv.reason) == ("conv", 20, 7, True, "")
    assert {(law.cell_id, law.attempt, law.model, law.scope) for law in (total, conv)} == {("c", 1, "net", "total")}


def test_a_total_that_breaks_it_names_the_operator_that_does() -> None:
    conv, matmul = series(line(20, 0, 1, 2, 16), "conv"), series({1: 5, 2: 10, 16: 81}, "addmm")
    total = series({1: 25, 2: 50, 16: 401})
    found = laws(conv + matmul + total)
    broken = found["fvcore", "forward", ""]
    assert (broken.holds, broken.slope_flop, broken.constant_flop) == (False, None, None)
    assert broken.reason == "on no line: counted 1: 25, 2: 50, 16: 401; broken by addmm"
    assert found["fvcore", "forward", "conv"].holds is True
    assert found["fvcore", "forward", "addmm"].holds is False


def test_what_selection_left_out_cannot_be_named_unless_it_is_given() -> None:
    norm, total = series({1: 5, 2: 10, 16: 81}, "batch_norm"), series({1: 25, 2: 50, 16: 401})
    conv = series(line(20, 0, 1, 2, 16), "conv")
    cleaned = clean_records({FLOP_COUNTS: norm + total + conv})
    kept, dropped = list(cleaned.flop_counts), list(cleaned.dropped[FLOP_COUNTS])
    assert laws(kept)["fvcore", "forward", ""].reason.endswith(f"broken by {LEFT_OUT}")
    assert laws(kept + dropped)["fvcore", "forward", ""].reason.endswith("broken by batch_norm")


def test_an_operator_that_is_not_counted_at_every_batch_breaks_it() -> None:
    found = laws(series(line(25, 0, 1, 2, 16)) + series(line(20, 0, 1, 2), "conv"))
    assert found["fvcore", "forward", "conv"].holds is False
    assert found["fvcore", "forward", "conv"].reason == "counted 1: 20, 2: 40, nothing at 16"


def test_two_batches_give_a_line_and_decide_nothing_one_gives_none() -> None:
    two = laws(series(line(3, 5, 1, 2)))["fvcore", "forward", ""]
    assert (two.slope_flop, two.constant_flop, two.holds) == (3, 5, None)
    one = laws(series({1: 8}))["fvcore", "forward", ""]
    assert (one.batches, one.slope_flop, one.constant_flop, one.holds) == ((1,), None, None, None)
    assert "one batch gives no law" in one.reason
    lost = laws(series(line(3, 5, 1, 2)) + series({1: 3}, "conv"))["fvcore", "forward", "conv"]
    assert (lost.holds, lost.slope_flop) == (None, None)


def test_half_a_flop_a_sample_is_no_law() -> None:
    half = laws(series({1: 0, 3: 1, 5: 2}))["fvcore", "forward", ""]
    assert (half.holds, half.slope_flop) == (False, None)
    assert "no whole number" in half.reason
    one_batch_of_three = laws(series({2: 7, 4: 13, 16: 49}))["fvcore", "forward", ""]  # 3·b + 1, none at 1
    assert (one_batch_of_three.slope_flop, one_batch_of_three.constant_flop) == (3, 1)


def test_extrapolated_failed_and_module_counts_are_no_evidence() -> None:
    rows = series(line(3, 5, 1, 2))
    rows += series({64: 999}, extrapolated=True)
    rows += series({16: 1}, status="timeout")
    rows += series({16: 1}, scope="layer1")
    rows += series({16: 1}, cell_id="other")
    assert laws(rows)["fvcore", "forward", ""].batches == (1, 2)


def test_phases_and_counters_have_laws_of_their_own_in_the_order_of_the_run() -> None:
    rows = series(line(2, 0, 1, 2, 16), counter="ptflops")
    rows += series(line(5, 0, 1, 2, 16), phase="backward") + series(line(3, 0, 1, 2, 16))
    found = batch_laws(RUN, rows)  # which names fvcore, then ptflops
    assert [(law.counter, law.phase, law.slope_flop) for law in found] == [
        ("fvcore", "forward", 3),
        ("fvcore", "backward", 5),
        ("ptflops", "forward", 2),
    ]


@given(st.integers(-(10**18), 10**18), st.integers(0, 10**18), st.integers(1, 10**6))
def test_a_miss_by_any_amount_is_seen_beyond_floats(slope: int, constant: int, off: int) -> None:
    exact = line(slope, constant, 1, 2, 16)
    held = laws(series(exact))["fvcore", "forward", ""]
    assert (held.slope_flop, held.constant_flop, held.holds) == (slope, constant, True)
    assert laws(series({**exact, 16: exact[16] + off}))["fvcore", "forward", ""].holds is False


class Early(nn.Module):
    """A layer more for batches above 4: 2·8·5 FLOP a sample always, 2·5·3 more for 16."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2, bias=False)  # 2 × 2 → 1: 8 MAC a sample
        self.first, self.second = nn.Linear(2, 5, bias=False), nn.Linear(5, 3, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.first(self.conv(images).flatten(1))
        return self.second(scores) if len(images) > 4 else scores


def test_a_real_counter_that_breaks_it_is_named_with_its_operator() -> None:
    rows = counted(ptflops_aten, Early().eval(), {size: torch.randn(size, 1, 2, 2) for size in (1, 2, 16)})
    found = laws(rows)
    assert (found["ptflops_aten", "forward", "aten.convolution"].slope_flop) == 16
    assert found["ptflops_aten", "forward", "aten.mm"].holds is False
    total = found["ptflops_aten", "forward", ""]
    assert total.reason == f"on no line: counted 1: 36, 2: 72, 16: {16 * 36 + 16 * 30}; broken by aten.mm"


def test_the_constant_of_pthflops_is_its_bias() -> None:
    """Counted once for a batch, its 4 output features: 2·8·4 FLOP a sample and 4 whatever the batch."""
    model = nn.Sequential(nn.Linear(8, 4))
    found = laws(counted(pthflops, model, {size: torch.randn(size, 8) for size in (1, 2, 16)}))
    total = found["pthflops", "forward", ""]
    assert (total.slope_flop, total.constant_flop, total.holds) == (64, 4, True)
    assert total.reason == "note: the constant is of Linear elementwise (4)"


def test_what_ptflops_prints_has_its_modules_for_a_constant() -> None:
    """It divides what modules did by the batch and not what functions did: ReLU of 6 elements counts 6 for its module,
    and 6 a sample for the function that it calls; the layer 5·6 multiply-adds and no bias."""
    model = nn.Sequential(nn.Linear(5, 6, bias=False), nn.ReLU())
    printed = {}
    for size in (1, 2, 16):
        printed[size], _ = get_model_complexity_info(
            model,
            (1,),
            print_per_layer_stat=False,
            as_strings=False,
            input_constructor=lambda _, size=size: torch.randn(size, 5),
            backend="pytorch",
        )
    law = laws(series(printed, counter="ptflops"))["ptflops", "forward", ""]
    assert (law.slope_flop, law.constant_flop, law.holds) == (6, 5 * 6 + 6, True)


@pytest.mark.slow
def test_swin_v2_has_a_constant_and_the_operator_is_named() -> None:
    """Its position networks see 15² = 225 offsets, whatever the batch: 2 → 512 → heads, in 12 blocks (fvcore: linear).

    Heads 3, 6, 12, 24 in 2, 2, 6, 2 blocks; the table of 225 offsets is the windows' of 8 × 8.
    """
    heads = 2 * [3] + 2 * [6] + 6 * [12] + 2 * [24]
    constant = 2 * sum(225 * (2 * 512 + 512 * each) for each in heads)
    model, _ = build("swin_v2_t", 1, 256)
    images = {size: torch.randn(size, 3, 256, 256) for size in (1, 2, 3)}
    found = laws(counted(fvcore, model, images))
    total = found["fvcore", "forward", ""]
    assert (total.holds, total.constant_flop) == (True, constant)
    assert total.reason.startswith("note: the constant is of linear")
