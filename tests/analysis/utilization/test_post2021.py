"""Definition: the 2021 post's arithmetic against divisions done by hand and against ours of the same cells."""

import dataclasses
from functools import partial
from pathlib import Path

import pytest

from analysis.utilization.denominators import Denominator, ceiling_of, datasheet, user
from analysis.utilization.numerators import Numerator
from analysis.utilization.utilization import MeanStepTime, Measurement, fp32_peak, post2021_rows
from cleaning.reconcile.derived import Built
from cleaning.reconcile.run import build
from results.records.answers import Utilization
from results.records.cell import Ceiling, Run
from results.store.store import read_operations, read_profile, read_run
from tests.support.made_up import run_fixture

EXACT = run_fixture.EXACT_FLOP["resnet18"]
RUN = Run(
    model="resnet18",
    batch_size=8,
    device="cuda",
    methods=("theory", "exact"),
    cell_id="c",
    attempt=1,
    session="s",
    status="ok",
    items_per_step=8,
)
NONE_KNOWN = Denominator("datasheet", reason="no datasheet peak for 'A card'")


def rebuilt(path: Path) -> Built:
    return build(read_run(path), lambda trace_id: read_operations(path, trace_id)[0], partial(read_profile, path))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return rebuilt(run_fixture.write_profiled_run(tmp_path_factory.mktemp("run") / "run"))


def row_of(built: Built, method: str, precision: str) -> Utilization:
    (row,) = [row for row in built.post2021 if (row.method, row.precision) == (method, precision)]
    return row


@pytest.mark.parametrize("precision", run_fixture.PEAK)
def test_a_multiply_add_is_one_and_the_peak_is_that_of_fp32(built: Built, precision: str) -> None:
    row = row_of(built, "batch", precision)
    step_s = run_fixture.work_s("batch", precision)
    assert row.model_flop == EXACT * 8 // 2
    assert row.peak_flop_per_s == run_fixture.PEAK["fp32"]
    assert row.time_s == pytest.approx(step_s)
    assert row.utilization_ratio == pytest.approx(EXACT * 8 / 2 / step_s / 66.9e12, rel=1e-12)
    assert row.utilization_low_ratio < row.utilization_ratio < row.utilization_high_ratio
    assert row_of(built, "exact", precision).utilization_ratio == row.utilization_ratio
    # half of ours where the policy is fp32; where bf16 ran, larger by the ratio of the peaks
    assert row.utilization_ratio == pytest.approx(0.40 / 2 * run_fixture.PEAK[precision] / run_fixture.PEAK["fp32"])


def test_theory_is_three_times_the_native_total_of_fvcore(built: Built) -> None:
    row = row_of(built, "theory", "fp32")
    native = (run_fixture.FORWARD_MAC["resnet18"] + run_fixture.NORMALIZATION_MAC) * 8
    assert (row.numerator_source, row.model_flop) == ("fvcore", 3 * native)
    published = next(r for r in built.utilization if r.method == "theory_as_published" and r.precision == "fp32")
    assert row.model_flop == published.model_flop


def one_row(numerator: Numerator, *under: Denominator, **more: object) -> Utilization:
    run = dataclasses.replace(RUN, methods=("exact",), **more)
    (row,) = post2021_rows(Measurement(run, MeanStepTime(1.0, 0.9, 1.1, 10)), [numerator], fp32_peak(under))
    return row


def ceiling(unit: str, flop_per_s: float) -> Ceiling:
    values = {"session": "s", "device": "cuda", "precision": "fp32", "operation": "matmul", "shape": "4096"}
    return Ceiling(**values, unit=unit, flop_per_s=flop_per_s)


def test_the_datasheets_peak_then_the_users_then_the_ceiling() -> None:
    sheet, own, measured = datasheet(run_fixture.H100, "cuda"), user(80.0), ceiling_of([ceiling("fp32", 52e12)])
    first = fp32_peak((sheet, measured, own))
    assert (first.name, first.peak_by_unit) == ("datasheet", {"fp32": 66.9e12})
    assert "not the datasheet's" not in first.sources["fp32"]
    second = fp32_peak((NONE_KNOWN, measured, own))
    assert (second.name, second.peak_by_unit) == ("user", {"fp32": 80e12})
    third = fp32_peak((NONE_KNOWN, measured, user(None)))
    assert (third.name, third.peak_by_unit) == ("ceiling", {"fp32": 52e12})
    for denominator in (second, third):
        assert "not the datasheet's: no datasheet peak for 'A card'" in denominator.sources["fp32"]


def test_without_an_fp32_peak_there_is_a_reason_and_no_other_peak() -> None:
    only_bf16 = ceiling_of([ceiling("bf16", 600e12)])
    none = fp32_peak((NONE_KNOWN, only_bf16, user(None)))
    row = one_row(Numerator("exact", "us", {"bf16": 100}), NONE_KNOWN, only_bf16, user(None))
    assert none.peak_by_unit == {}
    assert (row.status, row.utilization_ratio) == ("unavailable", None)
    assert "no fp32 peak" in row.reason
    assert "no ceiling peak for fp32" in row.reason
    assert row.achieved_flop_per_s == 50
