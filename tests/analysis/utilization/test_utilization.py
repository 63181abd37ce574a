"""Definition: utilization against arithmetic done by hand, for each numerator and denominator, and what is absent."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis.devices.telemetry import event_shares
from analysis.utilization.denominators import Denominator, datasheet, user
from analysis.utilization.numerators import (
    Numerator,
    count_table,
    exact,
    no_less_than_known,
    of_loop,
    theory,
    theory_as_published,
)
from analysis.utilization.utilization import (
    MeanStepTime,
    Measurement,
    limits_seen,
    measurement,
    post2021_numerators,
    rows,
)
from cleaning.counts import model_operators
from cleaning.reconcile.derived import Built
from cleaning.reconcile.run import build
from results.errors import Unavailable
from results.records.answers import Utilization
from results.records.cell import Run, Sample, Telemetry
from results.records.counts import FlopCount, Operation
from results.store.store import read_operations, read_profile, read_run
from tests.support.made_up import run_fixture

CELL = {"model": "resnet18", "batch_size": 8, "device": "cuda", "precision": "fp32"}
RUN = Run(**CELL, cell_id="c", attempt=1, session="s1", status="ok", items_per_step=8)
FP32 = {"fp32": 10}


def rebuilt(path: Path) -> Built:
    return build(read_run(path), lambda trace_id: read_operations(path, trace_id)[0], partial(read_profile, path))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return rebuilt(run_fixture.write_run(tmp_path_factory.mktemp("run") / "run"))


def row_of(built: Built, key: tuple[str, int, str], method: str, denominator: str, source: str = "") -> Utilization:
    (row,) = [
        row
        for row in built.utilization
        if (row.model, row.batch_size, row.precision) == key
        and (row.method, row.denominator) == (method, denominator)
        and source in ("", row.numerator_source)
    ]
    return row


# --- the whole way, from raw rows to fractions ------------------------------------------------------------------


@pytest.mark.parametrize("key", run_fixture.RATIO)
def test_utilization_of_the_datasheet_peak_is_the_one_the_run_was_made_with(built: Built, key) -> None:
    row = row_of(built, key, "exact", "datasheet")
    model, batch_size, precision = key
    assert row.model_flop == run_fixture.EXACT_FLOP[model] * batch_size
    assert row.peak_flop_per_s == run_fixture.PEAK[precision]
    assert row.time_s == pytest.approx(run_fixture.step_s(*key), rel=1e-12)
    assert row.utilization_ratio == pytest.approx(run_fixture.RATIO[key], rel=1e-12)
    assert row.items_per_s == pytest.approx(batch_size / run_fixture.step_s(*key), rel=1e-12)
    assert row.achieved_flop_per_s == pytest.approx(run_fixture.RATIO[key] * run_fixture.PEAK[precision], rel=1e-12)


def test_theory_is_three_times_the_forward_products_and_as_published_is_the_native_total(built: Built) -> None:
    key = ("resnet18", 8, "fp32")
    forward = run_fixture.FORWARD_MAC["resnet18"] * 8
    native = forward + run_fixture.NORMALIZATION_MAC * 8
    assert row_of(built, key, "theory", "datasheet", "fvcore").model_flop == 3 * 2 * forward
    assert row_of(built, key, "theory", "datasheet", "ptflops").model_flop == 3 * 2 * forward
    assert row_of(built, key, "theory_as_published", "datasheet").model_flop == 3 * native
    published = row_of(built, key, "theory_as_published", "user")
    assert any(mark.startswith("convention") for mark in published.warnings)


def test_a_failed_cell_keeps_its_count_and_its_reason(built: Built) -> None:
    row = row_of(built, ("mobilenet_v2", 512, "fp32"), "exact", "datasheet")
    assert (row.status, row.utilization_ratio, row.time_s) == ("out_of_memory", None, None)
    assert "61.2 GiB" in row.reason
    assert row.model_flop == run_fixture.EXACT_FLOP["mobilenet_v2"] * 512
    assert row.peak_flop_per_s == 66.9e12


def test_an_unknown_device_has_no_datasheet_peak_and_names_its_likes(tmp_path: Path) -> None:
    found = rebuilt(run_fixture.write_run(tmp_path / "run", device_name="NVIDIA H100 81GB HBM3"))
    for denominator in ("datasheet", "clock"):
        row = row_of(found, ("resnet18", 8, "fp32"), "exact", denominator)
        assert (row.status, row.peak_flop_per_s, row.utilization_ratio) == ("unavailable", None, None)
        assert "no datasheet peak for 'NVIDIA H100 81GB HBM3'" in row.reason
        assert "NVIDIA H100 80GB HBM3" in row.reason
        assert row.achieved_flop_per_s is not None
    assert row_of(found, ("resnet18", 8, "fp32"), "exact", "ceiling").utilization_ratio is not None


# --- numerators --------------------------------------------------------------------------------------------------


def test_units_follow_dtype_policy_and_device() -> None:
    counted = count_table(run_fixture.operations("mobilenet_v2", 2, "fp32"))
    flop = 2 * run_fixture.EXACT_FLOP["mobilenet_v2"]

    def units(**changes: object) -> dict[str, int]:
        return dict(exact(counted, dataclasses.replace(RUN, **changes)).flop_by_unit)

    assert units() == {"fp32": flop}
    assert units(precision="tf32") == {"tf32": flop}
    assert units(precision="tf32", device="cpu") == {"fp32": flop}
    assert units(precision="amp-bf16") == {"tf32": flop}  # what autocast leaves in float32 may be rounded to TF32
    half = count_table(run_fixture.operations("mobilenet_v2", 2, "amp-bf16"))
    assert exact(half, dataclasses.replace(RUN, precision="amp-bf16")).flop_by_unit == {"bf16": flop}


def test_a_dtype_without_unit_is_a_reason_not_a_partial_sum() -> None:
    table = run_fixture.operations("resnet18", 1, "fp32")
    odd = dataclasses.replace(table[0], input_dtypes=("int64", "int64"))
    numerator = exact(count_table([odd, *table[1:]]), RUN)
    assert numerator.model_flop is None
    assert "int64" in numerator.reason


def test_operations_without_a_formula_are_named() -> None:
    table = run_fixture.operations("resnet18", 1, "fp32")
    strange = dataclasses.replace(table[-1], name="custom.secret_product", kind="", phase="forward")
    numerator = exact(count_table([*table, strange, strange]), RUN)
    assert "custom.secret_product × 2" in numerator.reason
    assert (numerator.model_flop, numerator.all_flop, numerator.unknown_calls) == (None, None, 2)
    assert numerator.at_least_flop == exact(count_table(table), RUN).model_flop


def test_a_real_step_that_differs_from_the_trace_is_a_warning() -> None:
    counted = count_table(run_fixture.operations("resnet18", 1, "fp32"))
    same = {f"{kind}/{dtype}": flop for (kind, dtype), flop in counted.flop_by_kind_dtype.items()}
    assert exact(counted, dataclasses.replace(RUN, executed=same)).warnings == ()
    other = {**same, "convolution/float32": same["convolution/float32"] - 2}
    (mark,) = exact(counted, dataclasses.replace(RUN, executed=other)).warnings
    assert mark.startswith("executed_differs")
    assert str(same["convolution/float32"]) in mark


def count(operator: str, mac: int | None, **more: object) -> FlopCount:
    values = {"cell_id": "c", "attempt": 1, "counter": "fvcore", "workload": "resnet18", "batch_size": 8}
    values |= {"phase": "forward", "operator": operator, "native_value": mac, "native_unit": "mac", **more}
    each = {"mac": 2, "flop": 1}.get(values["native_unit"])
    return FlopCount(**{"flop": None if mac is None or each is None else each * mac, **values})


def cleaned(*counts: FlopCount) -> tuple[FlopCount, ...]:
    return tuple(model_operators(counts)[0])


@pytest.mark.parametrize(
    ("counter", "operators", "unit"),
    [
        ("flopledger", {"convolution": 100, "matmul": 10, "attention": 4, "recurrent": 2}, "flop"),
        ("flop_counter_mode", {"aten.convolution": 100, "aten.addmm": 12, "aten._flash_attention_forward": 4}, "flop"),
        ("torch_profiler", {"aten::conv2d": 100, "aten::addmm": 16}, "flop"),
        ("ptflops_aten", {"aten.convolution": 100, "aten.mm": 16}, "mac"),
        ("pthflops", {"Conv2d": 100, "Linear": 16}, "mac"),
    ],
)
def test_every_counter_gives_a_theory_and_attention_runs_as_matrix_products(counter, operators, unit) -> None:
    rows_ = [count(name, value, counter=counter, native_unit=unit) for name, value in operators.items()]
    total = count("", sum(operators.values()), counter=counter, native_unit=unit)
    mixed = dataclasses.replace(RUN, convolution_unit="tf32", matmul_unit="fp32")
    factor = 3 * {"mac": 2, "flop": 1}[unit]
    found = theory(cleaned(*rows_, total), mixed, counter)
    assert (found.source, found.flop_by_unit) == (counter, {"tf32": 100 * factor, "fp32": 16 * factor})


def test_theory_splits_convolutions_and_products_between_their_units() -> None:
    counts = cleaned(count("conv", 100), count("addmm", 10), count("linear", 1), count("layer_norm", 7), count("", 118))
    mixed = dataclasses.replace(RUN, convolution_unit="tf32", matmul_unit="fp32")
    assert theory(counts, mixed, "fvcore").flop_by_unit == {"tf32": 600, "fp32": 66}
    assert theory_as_published(counts, mixed).flop_by_unit == {"tf32": 354}  # one peak for everything, as the post


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ([], "found 0"),
        ([count("conv", 5, cell_id="other"), count("", 5, cell_id="other")], "found 0"),
        ([count("conv", 5, batch_size=4), count("", 5, batch_size=4)], "found 0"),
        ([count("", 5)], "no convolution or matrix product"),
        ([count("", None, status="unavailable", reason="fvcore is not installed")], "not installed"),
        (
            [count("conv", 5), count("addmm", 5, status="invalid", reason="a furlong is no unit"), count("", 10)],
            "furlong",
        ),
    ],
)
def test_theory_without_a_whole_count_is_a_reason(counts: list[FlopCount], why: str) -> None:
    for numerator in (theory(cleaned(*counts), RUN, "fvcore"), theory_as_published(cleaned(*counts), RUN)):
        assert numerator.model_flop is None
        assert why in numerator.reason


def test_what_a_counter_did_not_understand_and_what_it_extrapolated_is_told() -> None:
    total = count("", 10, not_understood={"aten::scaled_dot_product_attention": 12}, extrapolated=True)
    numerator = theory(cleaned(count("conv", 10), total), RUN, "fvcore")
    assert "aten::scaled_dot_product_attention × 12" in numerator.reason
    assert (numerator.model_flop, numerator.unknown_calls) == (None, 12)
    assert numerator.at_least_flop == 3 * 2 * 10  # fvcore counts multiply-adds
    assert any(mark.startswith("extrapolated") for mark in numerator.warnings)


def test_what_the_post_would_print_of_a_part_is_no_number() -> None:
    """Multiply-adds: 3 × 10 at least, half of the 60 FLOP; without a native value there is nothing to multiply."""
    total = count("", 10, not_understood={"aten::scaled_dot_product_attention": 12})
    found = theory_as_published(cleaned(count("conv", 10), total), RUN)
    assert (found.model_flop, found.at_least_flop, found.unknown_calls) == (None, 30, 12)
    (post,) = post2021_numerators([found], dataclasses.replace(RUN, methods=("theory",)))
    assert (post.model_flop, post.at_least_flop) == (None, 30)
    partial = Numerator("exact", "flopledger", reason="x", at_least_flop=60)
    (exactly,) = post2021_numerators([partial], dataclasses.replace(RUN, methods=("exact",)))
    assert exactly.at_least_flop == 30
    wiped = dataclasses.replace(count("", 10), native_value=None, flop=20)
    lost = theory_as_published((count("conv", 10, flop=20), wiped), RUN)
    assert (lost.model_flop, lost.reason) == (None, "fvcore: its total has no native value")


def test_a_counters_part_of_a_step_is_no_numerator() -> None:
    """Our own count has 100 FLOP at least, and a call without a formula: 99 of a counter of modules are a part."""
    ours = Numerator("exact", "flopledger", reason="not_understood: my.op × 2 have no formula", at_least_flop=100)
    less, more = (Numerator("theory", "ptflops", {"fp32": flop}) for flop in (99, 100))
    published = Numerator("theory_as_published", "fvcore", {"fp32": 50})
    found = no_less_than_known([ours, less, more, published])
    assert (found[1].model_flop, found[1].at_least_flop) == (None, 99)
    assert "100 are known at least" in found[1].reason
    assert (found[2].model_flop, found[2].at_least_flop) == (None, 100)
    said = "unproven: ptflops counts 100 FLOP, which may be a part: not_understood: my.op × 2 have no formula"
    assert found[2].reason == said
    assert found[3] == published
    whole = [Numerator("exact", "flopledger", {"fp32": 200}), less]
    assert no_less_than_known(whole) == whole
    (row,) = rows(Measurement(RUN, None), found[1:2], [Denominator("user", {"fp32": 100.0})])
    assert (row.model_flop, row.utilization_ratio, row.at_least_flop) == (None, None, 99)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ReLU6", False),
        ("Tensor.relu", False),
        ("aten::add_", False),
        ("adaptive_avg_pool2d", False),
        ("Conv2d", True),
        ("aten::convolution_backward", True),
        ("their.own_product", True),  # unknown to us
    ],
)
def test_only_what_may_be_a_product_leaves_no_total(name: str, told: bool) -> None:
    total = count("", 10, not_understood={name: 3})
    numerator = theory(cleaned(count("conv", 10), total), RUN, "fvcore")
    assert (f"no rule for {name} × 3" in numerator.reason) == told
    assert (numerator.model_flop is None) == told


# --- denominators ------------------------------------------------------------------------------------------------


def test_datasheet_of_a_cpu_and_of_devices() -> None:
    assert "CPU" in datasheet("AMD EPYC 9654", "cpu").reason
    sheet = datasheet("NVIDIA H100 80GB HBM3", "cuda:1")
    assert (sheet.peak_by_unit["fp32"], sheet.peak_by_unit["bf16"]) == (66.9e12, 989.4e12)
    assert "fp64_tensor" not in sheet.peak_by_unit
    assert datasheet("NVIDIA H100 80GB HBM3", "cuda", multiprocessors=16).reason  # a slice is not the whole device


# --- time, warnings, notes ---------------------------------------------------------------------------------------


def block(part: str = "measure", **more: object) -> Sample:
    values = {"cell_id": "c", "attempt": 1, "index": 0, "part": part, "steps": 10, "start_s": 0.0, "wall_s": 4.0}
    return Sample(**{**values, **more})


def test_one_block_has_no_interval_and_none_has_no_time() -> None:
    time = measurement(RUN, [block()], []).time
    assert time is not None
    assert (time.mean_s, time.low_s, time.high_s) == (0.4, None, None)
    assert measurement(RUN, [block("warmup")], []).time is None
    (row,) = rows(Measurement(RUN, time), [Numerator("exact", "us", FP32)], [Denominator("user", {"fp32": 100.0})])
    assert row.utilization_ratio == pytest.approx(10 / (0.4 * 100))
    assert (row.utilization_low_ratio, row.utilization_high_ratio) == (None, None)


def test_a_drift_that_stands_out_of_the_noise_is_noted() -> None:
    def noted(last: float, noise: float) -> str:
        level = [4.0, 4.0, 4.0 * last]
        blocks = [block(wall_s=level[i // 10] * (1 + noise * (-1) ** i)) for i in range(30)]
        return measurement(RUN, blocks, []).time.drift

    assert noted(1.03, 0.0001) == "drift: the last third of the blocks took +3.0 % against the first"
    assert noted(0.97, 0.0001) == "drift: the last third of the blocks took -3.0 % against the first"
    assert noted(1.03, 0.1) == ""  # noise of 10 %
    assert noted(1.009, 0.0001) == ""  # less than 1 %
    drifting = Measurement(RUN, MeanStepTime(1.0, 0.9, 1.1, 10, "drift: x"))
    (row,) = rows(drifting, [Numerator("exact", "us", FP32)], [user(1.0)])
    assert row.warnings[0] == "drift: x"


def test_a_ratio_above_one_by_one_counter_alone_is_that_counters_fault() -> None:
    """1 s, a ceiling of 10 FLOP/s: 10 FLOP by the exact count are all of it; fvcore's 12 cannot be."""
    measured = Measurement(RUN, MeanStepTime(1.0, 0.9, 1.1, 10))
    ceiling = Denominator("ceiling", {"fp32": 10.0})
    exact, counter = Numerator("exact", "flopledger", {"fp32": 10}), Numerator("theory", "fvcore", {"fp32": 12})
    by_counter, by_us = rows(measured, [counter, exact], [ceiling])
    assert by_counter.utilization_ratio == 1.2  # never clamped
    (mark,) = by_counter.warnings
    assert mark == "counter_too_high: fvcore: by its count the cell reaches 1.2 × this peak, by the exact count 1 ×"
    assert by_us.warnings == ()
    (alone,) = rows(measured, [counter], [ceiling])
    assert alone.warnings[0].startswith("ceiling_too_low"), "nothing says that the counter is wrong"
    both = rows(measured, [counter, Numerator("exact", "flopledger", {"fp32": 11})], [ceiling])
    assert [row.warnings[0].partition(":")[0] for row in both] == ["ceiling_too_low"] * 2


def test_limits_name_what_lowered_the_clock_inside_the_window_only() -> None:
    def poll(time_s: float, *reasons: str) -> Telemetry:
        return Telemetry(cell_id="c", attempt=1, time_s=time_s, event_reasons=reasons)

    polls = [poll(0, "hw_thermal_slowdown"), poll(1, "sw_power_cap", "gpu_idle"), poll(2), poll(3), poll(4)]
    assert limits_seen(event_shares(polls, 1, 4)) == ("clock_limited: sw_power_cap in 25 % of polls",)
    assert limits_seen(event_shares([poll(1, "gpu_idle")], 0, 2)) == ()


def test_energy_of_the_row_is_used_first_and_needs_its_window() -> None:
    windowed = dataclasses.replace(RUN, window_start_s=10.0, window_end_s=12.0, energy_j=50.0)
    assert measurement(windowed, [block()], []).power_w == 25
    assert measurement(dataclasses.replace(RUN, energy_j=50.0), [block()], []).power_w is None


def test_a_cell_without_an_operation_table_says_so(tmp_path: Path) -> None:
    path = run_fixture.write_run(tmp_path / "run")

    def lost(trace_id: str) -> list[Operation]:
        raise ValueError(f"the run has no {trace_id}")

    found = build(read_run(path), lost, partial(read_profile, path))
    row = row_of(found, ("resnet18", 8, "fp32"), "exact", "datasheet")
    assert (row.status, row.model_flop) == ("unavailable", None)
    assert "operation table resnet18-b8-fp32" in row.reason
    assert row_of(found, ("resnet18", 8, "fp32"), "theory", "datasheet", "fvcore").utilization_ratio is not None
    assert any("operation table" in problem for problem in found.problems)


@pytest.mark.parametrize("flop", [None, "many", True])
def test_what_a_meter_counted_is_a_number_or_a_reason(flop: Any) -> None:
    """A run's files may say anything in JSON; a sum of it was a TypeError."""
    run = Run(
        model="net",
        batch_size=1,
        device="cpu",
        cell_id="c",
        attempt=1,
        session="s",
        status="ok",
        executed={"matmul/float32": flop},
    )
    assert of_loop(run).flop_by_unit == {}
    assert of_loop(run).reason == "the meter's count of these steps is not a number"


def test_a_counter_without_operators_gives_its_total_and_says_so() -> None:
    total = FlopCount(
        cell_id="c", attempt=1, counter="other", workload="m", batch_size=2, phase="forward", native_unit="mac", flop=50
    )
    run = Run(model="m", batch_size=2, device="cpu", cell_id="c", attempt=1, session="s", status="ok")
    numerator = theory([total], run, "other")
    assert numerator.flop_by_unit == {"fp32": 150}
    assert any(mark.startswith("convention") for mark in numerator.warnings)


def test_work_on_a_unit_without_a_peak_is_no_partial_sum() -> None:
    only = Denominator("datasheet", {"fp32": 10.0})
    with pytest.raises(Unavailable, match=r"no datasheet peak for bf16, which does 1 FLOP; known units: fp32"):
        only.peak({"fp32": 10**12, "bf16": 1})
    assert only.peak({"fp32": 10**12, "bf16": 0}) == 10.0
    with pytest.raises(Unavailable, match="no model FLOP"):
        only.peak({})


def test_mixed_units_take_the_ideal_time() -> None:
    mixed = Denominator("datasheet", {"fp32": 10.0, "tf32": 40.0}, {"fp32": "a", "tf32": "b"})
    # 100 FLOP at 10 and 400 FLOP at 40 take 10 s each: 500 FLOP in 20 s
    assert mixed.peak({"fp32": 100, "tf32": 400}) == 25.0
    assert mixed.source({"fp32": 100, "tf32": 400}) == "a; b"
    assert mixed.source({"fp32": 0, "tf32": 400}) == "b"


def test_energy_per_item(built: Built) -> None:
    key = ("resnet18", 64, "fp32")  # constant power over a window of nothing but its steps: watts × step ÷ items
    expected = run_fixture.POWER_W * run_fixture.step_s(*key) / 64
    assert row_of(built, key, "exact", "datasheet").energy_per_item_j == pytest.approx(expected)


def test_interval_of_the_ratio_is_that_of_the_time_turned_over(built: Built) -> None:
    for row in built.utilization:
        if row.utilization_ratio is None:
            continue
        assert row.utilization_low_ratio < row.utilization_ratio < row.utilization_high_ratio
        work = row.model_flop / row.peak_flop_per_s
        assert row.utilization_low_ratio == pytest.approx(work / row.time_high_s)
        assert row.utilization_high_ratio == pytest.approx(work / row.time_low_s)


def test_recomputation_is_no_model_flop() -> None:
    table = run_fixture.operations("resnet18", 1, "fp32")
    assert any(operation.phase == "recompute" for operation in table)
    assert count_table(table).model_flop == run_fixture.EXACT_FLOP["resnet18"]


TENSOR = {"bf16": 10}


def fraction(unit: dict[str, int], denominator: str, peak: float, **more: object) -> Utilization:
    measured = Measurement(dataclasses.replace(RUN, **more), MeanStepTime(1.0, 0.9, 1.1, 10))
    (row,) = rows(measured, [Numerator("exact", "us", unit)], [Denominator(denominator, dict.fromkeys(unit, peak))])
    return row


def test_above_one_is_kept_and_explained() -> None:
    tensor, cores = fraction(TENSOR, "datasheet", 8.0), fraction(FP32, "datasheet", 8.0)
    assert (tensor.utilization_ratio, cores.utilization_ratio) == (1.25, 1.25)  # 10 FLOP in 1 s of 8: never clamped
    assert "error in numerator or denominator" in tensor.warnings[0]
    assert "Winograd" in cores.warnings[0]
    assert fraction(FP32, "ceiling", 8.0).warnings[0].startswith("ceiling_too_low")
    assert fraction(TENSOR, "ceiling", 8.0).warnings[0].startswith("ceiling_too_low")
    assert fraction(FP32, "datasheet", 10.0).warnings == ()  # exactly 1 is not above 1


def test_telemetry_outside_the_window_is_not_observed() -> None:
    def poll(time_s: float, clock: int) -> Telemetry:
        return Telemetry(cell_id="c", attempt=1, time_s=time_s, sm_clock_hz=clock, power_w=100.0)

    run = dataclasses.replace(RUN, window_start_s=10.0, window_end_s=12.0)
    found = measurement(run, [block()], [poll(0, 1), poll(10, 2000), poll(11, 2000), poll(12, 2000), poll(20, 1)])
    assert found.clock_hz == pytest.approx(2000)
    assert found.power_w == pytest.approx(100)  # polled; the row itself has no energy
    assert measurement(RUN, [block()], [poll(10, 2000)]).clock_hz is None
