"""Law, definition, injected fault: numerators by attention convention, from a table as it is written and read."""

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
from results.records.rows import header
from results.store.layout import encode, read_block
from tests.measure.model.masked_models import BATCH, BATCHES, LENGTH, model_of

RUN = Run(
    model="m", batch_size=BATCH, device="cpu", precision="fp32", cell_id="c", attempt=1, session="s1", status="ok"
)
TIME_S, PEAK = 0.5, 1e9


def written_and_read(operation: Operation) -> Operation:
    (read,) = read_block(Operation, header(Operation), encode([operation]))
    return read


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
    hardware = sum(each or 0 for each in counted.by_convention("hardware"))
    assert row.hardware_flop == hardware > 0


def test_what_a_kernel_computes_is_a_count_and_no_ratio_and_without_attention_there_is_none() -> None:
    """A causal call of 1,024 words: torch's kernel for CPUs takes 256 queries by 512 keys, 512 · 512 + 512 · 1,024
    pairs, of which 1,024 · 1,025 / 2 are kept."""
    length, width = 1024, 32
    model = model_of("llama", attn_implementation="sdpa", max_position_embeddings=length)
    trace = step_trace(model, torch.zeros(1, length).long(), {}, None, None)
    numerator = exact(count_table([written_and_read(each) for each in trace.operations]), RUN)
    causal, hardware = (numerator.by_convention(name) for name in ("causal", "hardware"))
    of_pair = 3 * 2 * 2 * width * 2  # of two layers, forward and backward
    tiles = 512 * 512 + 512 * 1024
    assert hardware["fp32"] - causal["fp32"] == of_pair * (tiles - length * (length + 1) // 2)
    plain = exact(count_table(step_trace(torch.nn.Linear(8, 4), torch.randn(2, 8), {}, None, None).operations), RUN)
    assert plain.by_convention("hardware") is None
    assert plain.by_convention("causal") == plain.flop_by_unit


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
