"""Definition, injected fault: from profiles to utilization, every number of a made-up run by hand."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis.utilization.numerators import profiled
from cleaning.reconcile.derived import Built
from cleaning.reconcile.run import build
from results.errors import Inconsistent
from results.records.answers import Utilization
from results.records.cell import Run
from results.records.counts import CleanedOperation, ProfileCount, ProfiledOperation
from results.store.store import read_operations, read_profile, read_run
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


# --- numerators alone --------------------------------------------------------------------------------------------

RUN = Run(
    model="m", batch_size=8, device="cuda", precision="amp-bf16", methods=("batch",), epoch_images=20, cell_id="c",
    attempt=1, session="s", status="ok", convolution_unit="bf16", matmul_unit="tf32",
)  # fmt: skip


def count(phase: str, flop: int | None, work: str = "batch", **more: Any) -> ProfileCount:
    shared = {name: getattr(RUN, name) for name in ("cell_id", "attempt", "model", "batch_size", "precision", "device")}
    values = {"source": "torch_profiler", "work": work, "items": 8, "phase": phase, "cleaned_flop": flop}
    return ProfileCount(**{**shared, **values, **more})


def product(phase: str, flop: int, dtype: str = "bfloat16", **more: Any) -> CleanedOperation:
    values = {"cell_id": "c", "attempt": 1, "source": "torch_profiler", "work": "batch", "index": 0, "name": "x"}
    values |= {"kind": "convolution", "phase": phase, "module": "", "dtype": dtype, "cleaned_flop": flop}
    return CleanedOperation(**{**values, "verdict": "right", **more})


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
