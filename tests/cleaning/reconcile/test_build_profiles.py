"""From profiles and times of works to utilization: every number of a made-up run whose answers are known by hand."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from analysis.utilization import numerators, work_times
from analysis.utilization.numerators import profiled
from cleaning.reconcile.run import build
from cleaning.reconcile.view import Built
from reports.sweep.table import to_text
from results.errors import Inconsistent
from results.records.answers import Utilization, WorkTime
from results.records.cell import Run
from results.records.counts import CleanedOperation, ProfileCount
from results.records.operations import ProfiledOperation
from results.store.store import read_operations, read_profile, read_run
from runners.report import command
from tests.support.made_up import run_fixture

EXACT = run_fixture.EXACT_FLOP["resnet18"]
FORWARD = 2 * run_fixture.FORWARD_MAC["resnet18"]
RATIO = {
    **{work: run_fixture.WORK_RATIO[work] for work in ("one", "batch")},
    "epoch": 84 / (10 * 8 / 0.40 + 4 / 0.30),  # 84 images' FLOP ÷ (ten batches' at 0.4 + four images' at 0.3)
}
ITEMS = {"one": 1, "batch": 8, "epoch": 84}

ReadProfile = Callable[[str, int], Sequence[ProfiledOperation]]


def rebuilt(path: Path, profile: ReadProfile | None = None) -> Built:
    return build(
        read_run(path), lambda trace_id: read_operations(path, trace_id)[0], profile or partial(read_profile, path)
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_fixture.write_profiled_run(tmp_path_factory.mktemp("run") / "run", peak_tflops=80.0)


@pytest.fixture(scope="module")
def built(path: Path) -> Built:
    return rebuilt(path)


def row_of(built: Built, method: str, denominator: str = "datasheet", precision: str = "fp32") -> Utilization:
    """The first row of them: that of fvcore, if the method is theory."""
    key = (method, denominator, precision)
    return next(row for row in built.utilization if (row.method, row.denominator, row.precision) == key)


def time_of(built: Built, work: str, precision: str = "fp32") -> WorkTime:
    (row,) = [row for row in built.work_times if (row.work, row.precision) == (work, precision)]
    return row


# --- utilization -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", run_fixture.PEAK)
@pytest.mark.parametrize("method", RATIO)
def test_each_method_divides_its_own_flop_by_its_own_time(built: Built, method: str, precision: str) -> None:
    row = row_of(built, method, precision=precision)
    if (method, precision) == ("one", "amp-bf16"):
        assert (row.status, row.reason) == ("unavailable", run_fixture.NO_PROFILE)
        assert (row.utilization_ratio, row.time_s, row.model_flop) == (None, None, None)
        return
    assert row.numerator_source == "torch_profiler"
    assert row.model_flop == EXACT * ITEMS[method]
    assert row.all_flop is None
    assert row.time_s == pytest.approx(run_fixture.work_s(method, precision), rel=1e-12)
    assert row.peak_flop_per_s == pytest.approx(run_fixture.PEAK[precision], rel=1e-12)
    assert row.utilization_ratio == pytest.approx(RATIO[method], rel=1e-12)
    assert row.utilization_low_ratio < row.utilization_ratio < row.utilization_high_ratio
    assert row.items_per_s == pytest.approx(ITEMS[method] / run_fixture.work_s(method, precision), rel=1e-12)


def test_exact_stays_the_count_of_the_cells_own_step(built: Built) -> None:
    exact, batch = row_of(built, "exact"), row_of(built, "batch")
    assert exact.utilization_ratio == pytest.approx(0.40)
    assert exact.model_flop == batch.model_flop
    assert (exact.time_s, exact.time_low_s) == (batch.time_s, batch.time_low_s)


def test_energy_was_taken_over_the_batch_alone(built: Built) -> None:
    expected = run_fixture.POWER_W * run_fixture.work_s("batch", "fp32") / 8
    assert row_of(built, "batch").energy_per_item_j == pytest.approx(expected)
    assert [row_of(built, method).energy_per_item_j for method in ("one", "epoch")] == [None, None]


def test_warnings_of_a_work_are_said_of_the_methods_that_need_it(path: Path) -> None:
    data = read_run(path)
    marks = ("one: wide", "last: wider", "profile: one: no kernels", "profile: in eager mode", "busy: others")
    runs = [dataclasses.replace(run, warnings=marks) for run in data.runs]
    found = build(
        dataclasses.replace(data, runs=runs),
        lambda trace_id: read_operations(path, trace_id)[0],
        partial(read_profile, path),
    )
    said = {method: set(row_of(found, method).warnings) & set(marks) for method in (*RATIO, "exact", "theory")}
    cell = {"profile: in eager mode", "busy: others"}
    assert said == {
        "one": {"one: wide", "profile: one: no kernels", *cell},
        "batch": cell,
        "epoch": {"last: wider", *cell},
        "exact": cell,
        "theory": cell,
    }
    states = {method: (row_of(found, method).status, row_of(found, method).reason) for method in said}
    assert states["one"] == ("not_converged", "wide")
    assert states["epoch"] == ("not_converged", "last: wider")
    assert states["batch"] == states["exact"] == ("ok", "")


# --- times, counts, ratios ---------------------------------------------------------------------------------------


def half(values: Sequence[float]) -> float:
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.tstd(values) / math.sqrt(len(values)))


def test_the_epoch_of_the_file(built: Built) -> None:
    row = time_of(built, "epoch")
    batch_s, last_s = run_fixture.work_s("batch", "fp32"), run_fixture.work_s("last", "fp32")
    assert (row.items, row.steps) == (84, 11)
    assert row.time_s == pytest.approx(10 * batch_s + last_s, rel=1e-12)
    spread = [0.996, 1.004] * 5
    width = math.sqrt((10 * batch_s * half(spread)) ** 2 + (last_s * half(spread)) ** 2)
    assert row.high_s == pytest.approx(row.time_s * math.exp(width / row.time_s), rel=1e-12)
    assert row.low_s == pytest.approx(row.time_s * math.exp(-width / row.time_s), rel=1e-12)
    assert row.overhead_ratio == pytest.approx(run_fixture.PROFILER_COSTS - 1, rel=1e-9)
    assert row.real_time_s == pytest.approx(run_fixture.REAL_S_PER_S * row.time_s, rel=1e-9)
    # four segments of two steps: 8 of the epoch's 11 steps
    real = batch_s * half([run_fixture.REAL_S_PER_S + 0.002, run_fixture.REAL_S_PER_S - 0.002] * 2) * math.sqrt(8 * 11)
    assert row.real_high_s == pytest.approx(row.real_time_s * math.exp(real / row.real_time_s), rel=1e-12)
    assert row.agrees is True


def test_a_row_for_each_work_and_each_cell(built: Built) -> None:
    assert [(row.precision, row.work) for row in built.work_times] == [
        (precision, work) for precision in run_fixture.PEAK for work in ("one", "batch", "last", "epoch")
    ]
    lost = time_of(built, "one", "amp-bf16")
    assert (lost.status, lost.time_s, lost.reason) == ("unavailable", None, run_fixture.NO_PROFILE)


def test_counts_of_the_profile_as_found_and_as_cleaned(built: Built) -> None:
    counts = {(c.work, c.phase): c for c in built.profile_counts if c.precision == "fp32"}
    assert set(counts) == {(w, p) for w in ("one", "batch", "last", "epoch") for p in ("forward", "backward")}
    for work, items in {**ITEMS, "last": 4}.items():
        forward, backward = counts[work, "forward"], counts[work, "backward"]
        assert forward.found_flop == forward.cleaned_flop == FORWARD * items
        assert backward.found_flop is None  # the convolutions' gradients have no number
        assert (
            backward.found_at_least_flop == 2 * 2 * run_fixture.PRODUCT_MAC * items
        )  # the product's two gradients alone
        assert backward.cleaned_flop == (EXACT - FORWARD) * items
    assert counts["batch", "forward"].exact_flop == FORWARD * 8
    assert counts["batch", "backward"].exact_flop == (EXACT - FORWARD) * 8


def test_ratios_and_agreement_and_laws_are_there(built: Built) -> None:
    model = [r for r in built.ratios if (r.level, r.precision, r.source) == ("model", "fp32", "torch_profiler")]
    cleaned = {row.work: row for row in model if row.state == "cleaned"}
    assert set(cleaned) == {"one", "batch", "epoch"}
    first_share = run_fixture.FIRST_MAC / run_fixture.FORWARD_MAC["resnet18"]
    for row in cleaned.values():
        assert row.ratio == pytest.approx(2 - first_share, rel=1e-12)
    found = {row.work: row for row in model if row.state == "found"}
    assert (found["batch"].backward_flop, found["batch"].ratio) == (None, None)  # of the products with a number alone
    assert found["batch"].backward_at_least_flop == 4 * run_fixture.PRODUCT_MAC * 8
    agreement = {(row.counter, row.phase): row for row in built.agreement}
    assert agreement["fvcore", "forward"].model_flop == FORWARD * 8
    assert agreement["fvcore", "forward"].ratio == 1.0
    laws = {(law.counter, law.operator) for law in built.batch_laws}
    assert {("fvcore", ""), ("ptflops", ""), ("fvcore", "conv")} <= laws
    assert ("fvcore", "batch_norm") in laws, "what is no product may be what breaks a total's law"


def test_the_cleaning_log_holds_counts_and_profiles(built: Built) -> None:
    steps = {entry.step for entry in built.cleaned.log}
    assert {"one_convention", "repaired"} <= steps
    repaired = [entry for entry in built.cleaned.log if entry.step == "repaired"]
    assert len(repaired) == 2 * (3 + 2)  # two convolutions' backward in each work of both cells


# --- what is damaged or absent -----------------------------------------------------------------------------------


def test_a_damaged_profile_is_a_reason_in_rows_and_a_problem(path: Path) -> None:
    def damaged(cell_id: str, attempt: int) -> list[ProfiledOperation]:
        raise Inconsistent(f"profiles/{cell_id}: damaged gzip")

    found = rebuilt(path, damaged)
    assert sum("damaged gzip" in problem for problem in found.problems) == 2
    for method in RATIO:
        row = row_of(found, method)
        assert (row.status, row.utilization_ratio, row.model_flop) == ("unavailable", None, None)
        assert "damaged gzip" in row.reason
        assert row.time_s == pytest.approx(run_fixture.work_s(method, "fp32"))  # it was timed all the same
    assert all(count.status != "ok" and "damaged gzip" in count.reason for count in found.profile_counts)
    assert found.cleaned_operations == ()
    assert row_of(found, "exact").utilization_ratio == pytest.approx(0.40)


def test_a_product_without_shapes_makes_its_work_unknown_not_smaller(path: Path) -> None:
    def gap(call: ProfiledOperation) -> ProfiledOperation:
        if "conv" not in call.name or call.work != "last":
            return call
        return dataclasses.replace(call, input_shapes=((),) * len(call.input_shapes))

    found = rebuilt(path, lambda cell_id, attempt: [gap(call) for call in read_profile(path, cell_id, attempt)])
    epoch = row_of(found, "epoch")
    assert (epoch.status, epoch.model_flop) == ("unavailable", None)
    assert "no count" in epoch.reason
    assert row_of(found, "batch").utilization_ratio == pytest.approx(0.40)


def test_a_profile_that_differs_from_our_count_says_so(path: Path) -> None:
    def odd(call: ProfiledOperation) -> ProfiledOperation:
        drop = call.name == "aten::mm" and call.input_shapes[0] == (8, 10)
        return dataclasses.replace(call, name="aten::relu", found_flop=None) if drop else call

    found = rebuilt(path, lambda cell_id, attempt: [odd(call) for call in read_profile(path, cell_id, attempt)])
    (mark,) = [mark for mark in row_of(found, "batch").warnings if mark.startswith("profile_differs")]
    assert f"backward {(EXACT - FORWARD) * 8 - 2 * run_fixture.PRODUCT_MAC * 8} against {(EXACT - FORWARD) * 8}" in mark


def test_cells_without_profiles_have_no_rows_of_works(tmp_path: Path) -> None:
    plain = rebuilt(run_fixture.write_run(tmp_path / "run"))
    assert plain.work_times == plain.cleaned_operations == plain.profile_counts == ()
    assert {row.method for row in plain.utilization} == {"exact", "theory", "theory_as_published"}


# --- numerators alone --------------------------------------------------------------------------------------------

RUN = Run(
    model="m", batch_size=8, device="cuda", precision="amp-bf16", methods=("batch",), epoch_images=20, cell_id="c",
    attempt=1, sitting="s", status="ok", convolution_unit="bf16", matmul_unit="tf32",
)  # fmt: skip


def count(phase: str, flop: int | None, work: str = "batch", **more: Any) -> ProfileCount:
    shared = {name: getattr(RUN, name) for name in ("cell_id", "attempt", "model", "batch_size", "precision", "device")}
    values = {"source": "torch_profiler", "work": work, "items": 8, "phase": phase, "cleaned_flop": flop}
    return ProfileCount(**{**shared, **values, **more})


def product(phase: str, flop: int, dtype: str = "bfloat16", **more: Any) -> CleanedOperation:
    values = {"cell_id": "c", "attempt": 1, "source": "torch_profiler", "work": "batch", "index": 0, "name": "x"}
    values |= {"kind": "convolution", "phase": phase, "module": "", "dtype": dtype, "cleaned_flop": flop}
    return CleanedOperation(**{**values, "verdict": "right", **more})


def test_products_go_to_the_unit_of_their_dtype_or_of_the_policy() -> None:
    products = [
        product("forward", 100),
        product("loss", 7, "float32"),
        product("backward", 30, "", kind="attention"),  # no dtype recorded: a matrix product of the policy
        product("backward", 4, "", kind="convolution"),
        product("optimizer", 999),
        product("forward", 999, work="one"),
        product("forward", 999, source="another"),
    ]
    (numerator,) = profiled("batch", [count("forward", 107), count("backward", 34)], products, RUN)
    assert numerator.flop_by_unit == {"bf16": 104, "tf32": 37}
    assert numerator.model_flop == 141


def test_each_source_is_a_numerator_of_its_own() -> None:
    counts = [count("forward", 1), count("backward", 2), count("forward", 3, source="nsys")]
    products = [product("forward", 3)]
    first, second = profiled("batch", counts, products, RUN)
    assert (first.source, first.model_flop) == ("torch_profiler", 3)
    assert (second.source, second.model_flop) == ("nsys", None)


@pytest.mark.parametrize(
    ("counts", "products", "why"),
    [
        ([], [], "no profile of batch"),
        ([count("forward", 5)], [product("forward", 5)], "no profile of batch"),
        ([count("forward", 5), count("backward", None, unknown=2)], [], "2 products of backward"),
        ([count("forward", 5, status="unavailable", reason="lost"), count("backward", 1)], [], "lost"),
        ([count("forward", 5), count("backward", 1)], [product("forward", 5)], "add up to 5 FLOP, its counts to 6"),
        ([count("forward", 5), count("backward", 0)], [product("forward", 5, "complex64")], "complex64"),
    ],
)
def test_a_profile_that_gives_no_whole_count_is_a_reason(counts, products, why: str) -> None:
    (numerator,) = profiled("batch", counts, products, RUN)
    assert numerator.model_flop is None
    assert why in numerator.reason


# --- what is told and written ------------------------------------------------------------------------------------


def test_methods_stand_side_by_side_with_the_epochs_times(built: Built) -> None:
    text = to_text(built)
    (head,) = [line for line in text.splitlines() if "profiled" in line and "model" in line]
    assert " ".join(head.split()) == ("model batch precision theory one batch epoch exact images takes profiled whole")
    (_, row) = [line.split() for line in text.splitlines() if line.split()[:3] == ["resnet18", "8", "fp32"]]
    theory = 3 * FORWARD / EXACT * 0.40
    assert [float(used) for used in row[3:13:2]] == pytest.approx(
        [100 * ratio for ratio in (theory, 0.05, 0.40, RATIO["epoch"], 0.40)], rel=2e-2
    )
    epoch_s = run_fixture.work_s("epoch", "fp32")
    assert row[13] == "84"
    assert float(row[14]) == pytest.approx(1e3 * epoch_s, rel=5e-3)
    assert float(row[16]) == pytest.approx(1e3 * 1.25 * epoch_s, rel=5e-3)
    assert max(map(len, text.splitlines())) <= 100


def test_files_hold_what_was_built(path: Path, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_pictures", lambda out: {})
    monkeypatch.setattr(command, "_page", lambda *given: b"a page")
    assert command.write(built, tmp_path) == []
    packed = (tmp_path / "cleaned" / "profiled_operations.csv.gz").read_bytes()
    assert packed[4:8] == b"\0\0\0\0"  # no time in the header: equal contents, equal bytes
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
    assert len(rows) == len(built.cleaned_operations) == 7 * (3 + 2)
    for file, expected in {
        "work_times.csv": 8,
        "utilization_post2021.csv": 10,
        "cleaned/profile_counts.csv": 16,
    }.items():
        with (tmp_path / file).open(encoding="utf-8", newline="") as text:
            assert len(list(csv.DictReader(text))) == expected, file


# --- faults put in on purpose ------------------------------------------------------------------------------------


def check(built: Built) -> None:
    for precision in run_fixture.PEAK:
        for method in RATIO:
            row = row_of(built, method, precision=precision)
            if (method, precision) == ("one", "amp-bf16"):
                assert row.utilization_ratio is None
                continue
            assert row.utilization_ratio == pytest.approx(RATIO[method], rel=1e-9)
            assert row.utilization_low_ratio < row.utilization_ratio < row.utilization_high_ratio
            assert row.items_per_s == pytest.approx(ITEMS[method] / run_fixture.work_s(method, precision), rel=1e-9)
        epoch = time_of(built, "epoch", precision)
        assert epoch.low_s < epoch.time_s < epoch.high_s
        assert epoch.overhead_ratio == pytest.approx(0.25)
        assert epoch.agrees is True


Patch = pytest.MonkeyPatch


def double_a_numerator(patch: Patch) -> None:
    units = numerators._units_of_work
    patch.setattr(numerators, "_units_of_work", lambda *given: {u: 2 * f for u, f in units(*given).items()})
    patch.setattr(numerators, "_cleaned", lambda row: 2 * (row.cleaned_flop or 0))


def forward_alone(patch: Patch) -> None:
    patch.setattr(numerators, "_PROFILED_PHASES", ("forward", "loss"))


def backward_is_forward_twice(patch: Patch) -> None:
    patch.setattr(numerators, "_both_phases", lambda mine, *_rest: [mine[0], mine[0], mine[0]])


def swap_low_and_high(patch: Patch) -> None:
    low, high = work_times.Mean.low_s, work_times.Mean.high_s
    patch.setattr(work_times.Mean, "low_s", high)
    patch.setattr(work_times.Mean, "high_s", low)


def drop_the_last_batch(patch: Patch) -> None:
    patch.setattr(work_times, "epoch_of", lambda run: (run.epoch_images // run.batch_size, 0))


def drop_the_last_batch_of_the_count(patch: Patch) -> None:
    patch.setattr(numerators, "epoch_parts", lambda run: {"batch": run.epoch_images // run.batch_size})


def time_under_the_profiler(patch: Patch) -> None:
    on_one_clock, swapped = work_times._on_one_clock, {"measure": "profiled", "profiled": "measure"}

    def wrong(blocks: Sequence[Any]) -> list[Any]:
        return [dataclasses.replace(block, part=swapped[block.part]) for block in on_one_clock(blocks)]

    patch.setattr(work_times, "_on_one_clock", wrong)


def renamed(blocks: Sequence[Any], work: str, other: str) -> list[Any]:
    """The blocks, those of one work as if they were of another."""
    return [dataclasses.replace(block, work=other) if block.work == work else block for block in blocks]


def time_of_the_batch_for_one(patch: Patch) -> None:
    times = work_times._times_of_works
    patch.setattr(work_times, "_times_of_works", lambda run, blocks: times(run, renamed(blocks, "", "one")))


def real_epoch_in_the_batch(patch: Patch) -> None:
    times = work_times._times_of_works
    patch.setattr(work_times, "_times_of_works", lambda run, blocks: times(run, renamed(blocks, "epoch", "")))


MUTATIONS = (
    double_a_numerator,
    forward_alone,
    backward_is_forward_twice,
    swap_low_and_high,
    drop_the_last_batch,
    drop_the_last_batch_of_the_count,
    time_under_the_profiler,
    time_of_the_batch_for_one,
    real_epoch_in_the_batch,
)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_fault_turns_the_check_red(path: Path, built: Built, mutate: Callable[[Patch], None], monkeypatch: Patch):
    check(built)
    mutate(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        check(rebuilt(path))
