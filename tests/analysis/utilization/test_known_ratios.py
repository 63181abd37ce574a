"""A made-up run whose ratios are known: every method over every denominator, and tables that lost or gained a row.

The faults that these must notice are in `benchmarks/mutations/known_faults.csv`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cleaning.reconcile.run import build
from cleaning.reconcile.view import Built
from results.records.operations import Operation
from results.store.store import RunData, read_operations, read_profile, read_run
from tests.support.made_up import run_fixture


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_fixture.write_run(tmp_path_factory.mktemp("run") / "run", peak_tflops=80.0)


def rebuilt(path: Path, edit: Callable[[list[Operation]], list[Operation]] = list) -> Built:
    data: RunData = read_run(path)
    return build(data, lambda trace_id: edit(read_operations(path, trace_id)[0]), partial(read_profile, path))


def check(built: Built) -> None:
    """Every ratio of the run, derived from how it was made."""
    clock = {
        "fp32": 132 * 128 * 2 * run_fixture.CLOCK_HZ,
        "amp-bf16": 132 * 2048 * 2 * run_fixture.CLOCK_HZ,
    }  # SMs × FMA × 2 × f
    ceiling = {"fp32": 52e12, "amp-bf16": 650e12}
    for view in built.views:
        run, key = view.run, (view.run.model, view.run.batch_size, view.run.precision)
        if key not in run_fixture.RATIO:
            continue
        exact, forward = run_fixture.EXACT_FLOP[run.model], 2 * run_fixture.FORWARD_MAC[run.model]
        published = forward // 2 + run_fixture.NORMALIZATION_MAC
        times_exact = {"exact": 1, "theory": 3 * forward / exact, "theory_as_published": 3 * published / exact}
        under = {"datasheet": run_fixture.PEAK[run.precision], "clock": clock[run.precision]}
        under |= {"ceiling": ceiling[run.precision], "user": 80e12}
        for method, times in times_exact.items():
            for denominator, peak in under.items():
                row = view.fraction(method, denominator)
                assert row is not None
                expected = run_fixture.RATIO[key] * run_fixture.PEAK[run.precision] * times / peak
                assert row.utilization_ratio == pytest.approx(expected, rel=1e-9), (key, method, denominator)
                assert row.utilization_low_ratio < row.utilization_ratio < row.utilization_high_ratio
                tensor = run.precision != "fp32"
                assert not (tensor and row.utilization_ratio > 1 and not row.warnings)


def test_every_ratio_of_a_run_follows_from_how_it_was_made(path: Path) -> None:
    check(rebuilt(path))


def without(index: int) -> Callable[[list[Operation]], list[Operation]]:
    return lambda table: [operation for operation in table if operation.index != index]


@pytest.mark.parametrize(
    "edit",
    [
        without(0),
        without(4),
        lambda table: [dataclasses.replace(op, phase=op.phase.replace("recompute", "forward")) for op in table],
        lambda table: [*table, table[0]],
    ],
)
def test_a_table_that_lost_or_gained_an_operation_turns_the_check_red(path: Path, edit) -> None:
    with pytest.raises(AssertionError):
        check(rebuilt(path, edit))
