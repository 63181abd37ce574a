"""A cell's numerator by each convention of attention, from its operation table alone, as it is written and read."""

import dataclasses
from typing import Any

import pytest
import torch

import flopledger
from analysis.utilization.denominators import Denominator
from analysis.utilization.numerators import Numerator, count_table, exact, of_loop
from analysis.utilization.utilization import MeanStepTime, Measurement, rows
from measure.step import step_trace
from results.records.cell import Run
from results.records.counts import Operation
from tests.measure.model.masked_models import BATCH, BATCHES, LENGTH, model_of

RUN = Run(
    model="m", batch_size=BATCH, device="cpu", precision="fp32", cell_id="c", attempt=1, sitting="s1", status="ok"
)
TIME_S, PEAK = 0.5, 1e9


def written_and_read(operation: Operation) -> Operation:
    return Operation.from_row(operation.to_row())


@pytest.mark.parametrize("name", ["llama", "mistral", "bert"])
def test_the_table_of_a_step_has_the_conventions_of_its_count(name: str) -> None:
    model, inputs = model_of(name, attn_implementation="sdpa"), torch.randint(0, 50, (BATCH, LENGTH))
    counted = flopledger.count(model, inputs, kwargs=BATCHES["no mask"])
    trace = step_trace(model, inputs, BATCHES["no mask"], None, None)
    numerator = exact(count_table([written_and_read(each) for each in trace.operations]), RUN)
    assert numerator.attention == "dense"
    measured = Measurement(RUN, MeanStepTime(TIME_S, None, None, 3))
    (row,) = rows(measured, [numerator], [Denominator("user", {"fp32": PEAK}, {"fp32": "given"})])
    assert row.attention == "dense"
    for convention in ("causal", "mask_exact"):
        flop = sum(each or 0 for each in counted.by_convention(convention))
        assert getattr(row, f"{convention}_flop") == flop
        assert getattr(row, f"{convention}_utilization_ratio") == pytest.approx(flop / TIME_S / PEAK)


def test_of_a_loop_the_less_is_of_the_unit_that_runs_attention() -> None:
    run = dataclasses.replace(
        RUN, data="loop", executed={"attention/float32": 100, "convolution/float32": 50}, matmul_unit="fp32",
        convolution_unit="fp32", attention={"causal/float32": 40},
    )  # fmt: skip
    found = of_loop(run)
    assert found.by_convention("causal") == {"fp32": 110}
    assert found.by_convention("mask_exact") is None
    assert Numerator("exact", "x", {"fp32": 1}, reason="none").by_convention("causal") is None


@pytest.mark.parametrize("said", ["chunked", 7, {"mask_rule": 1}, "window:0"])
def test_a_rule_that_is_none_is_a_mask_that_is_not_known(said: Any) -> None:
    trace = step_trace(model_of("mistral", attn_implementation="sdpa"), torch.zeros(1, LENGTH).long(), {}, None, None)
    spoilt = [
        dataclasses.replace(each, attributes={**each.attributes, "mask_rule": said})
        if each.kind == "attention"
        else each
        for each in trace.operations
    ]
    assert not {"causal", "mask_exact"} & set(exact(count_table(spoilt), RUN).less)
