"""Faults that were put in on purpose: each must turn the checks of a run with known answers red.

`check` is what the made-up run must give. It passes on the code as it is, and every mutation below, a fault that
published numbers have had, makes it fail. A mutation that survives means that nobody would notice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from analysis.devices import peaks
from analysis.devices.precisions import TENSOR_UNITS
from analysis.operators import registry
from analysis.utilization import denominators, numerators, utilization
from cleaning.counts import conventions, model_operators
from cleaning.reconcile.run import Built, build
from results.records import Operation
from results.store.store import RunData, read_operations, read_profile, read_run
from tests.support.made_up import run_fixture

Patch = pytest.MonkeyPatch


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


def test_without_a_fault_all_is_green(path: Path) -> None:
    check(rebuilt(path))


def double_a_peak(patch: Patch) -> None:
    lookup = peaks.lookup

    def doubled(name: str, multiprocessors: int | None = None) -> peaks.Device | None:
        device = lookup(name, multiprocessors)
        return device and dataclasses.replace(device, peaks={unit: 2 * p for unit, p in device.peaks.items()})

    patch.setattr(peaks, "lookup", doubled)


def swap_units(patch: Patch) -> None:
    unit_of = numerators.unit_of
    swapped = {"fp32": "bf16", "bf16": "fp32"}
    patch.setattr(numerators, "unit_of", lambda *given: swapped[unit_of(*given)])


def swap_units_of_theory(patch: Patch) -> None:
    unit_of_kind = numerators.unit_of_kind
    swapped = {"fp32": "bf16", "bf16": "fp32"}
    patch.setattr(numerators, "unit_of_kind", lambda *given: swapped[unit_of_kind(*given)])


def ignore_the_clock(patch: Patch) -> None:
    patch.setattr(denominators, "at_clock", lambda sheet, _hz: dataclasses.replace(sheet, name="clock"))


def clock_of_the_fp32_figure_for_all_units(patch: Patch) -> None:
    at_clock = denominators.at_clock

    def wrong(sheet: denominators.Denominator, hz: float | None) -> denominators.Denominator:
        return at_clock(dataclasses.replace(sheet, clock_hz=dict.fromkeys(sheet.clock_hz, sheet.clock_hz["fp32"])), hz)

    patch.setattr(denominators, "at_clock", wrong)


def backward_as_one_forward(patch: Patch) -> None:
    patch.setattr(numerators, "TRAINING_PER_FORWARD", 2)


def a_multiply_add_is_one(patch: Patch) -> None:
    patch.setitem(conventions.FLOP_PER_NATIVE, "mac", 1)


def normalisation_is_model_flop(patch: Patch) -> None:
    patch.setattr(model_operators, "PRODUCTS", ("convolution", "matmul", "normalization"))


def products_are_no_model_flop(patch: Patch) -> None:
    patch.setattr(model_operators, "PRODUCTS", ("convolution",))


def wall_time_on_a_gpu(patch: Patch) -> None:
    step_time = utilization.step_time
    blind = lambda samples: step_time([dataclasses.replace(s, device_s=None) for s in samples])  # noqa: E731
    patch.setattr(utilization, "step_time", blind)


def warm_up_is_measured_too(patch: Patch) -> None:
    step_time = utilization.step_time
    greedy = lambda samples: step_time([dataclasses.replace(s, part="measure") for s in samples])  # noqa: E731
    patch.setattr(utilization, "step_time", greedy)


def ceilings_of_any_sitting(patch: Patch) -> None:
    ceiling_of = denominators.ceiling_of
    every = [run_fixture._ceiling(*row) for row in run_fixture.CEILINGS]
    patch.setattr(denominators, "ceiling_of", lambda _here, *known: ceiling_of(every, *known))


def every_unit_is_the_tensor_unit(patch: Patch) -> None:
    patch.setattr(numerators, "unit_of", lambda *_given: TENSOR_UNITS[1])


def a_formula_counts_double(patch: Patch) -> None:
    cost = registry.cost
    patch.setattr(numerators.registry, "cost", lambda *given: cost(*given) * 2)


MUTATIONS = (
    double_a_peak,
    swap_units,
    swap_units_of_theory,
    ignore_the_clock,
    clock_of_the_fp32_figure_for_all_units,
    backward_as_one_forward,
    a_multiply_add_is_one,
    normalisation_is_model_flop,
    products_are_no_model_flop,
    wall_time_on_a_gpu,
    warm_up_is_measured_too,
    ceilings_of_any_sitting,
    every_unit_is_the_tensor_unit,
    a_formula_counts_double,
)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_fault_turns_the_check_red(path: Path, mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check(rebuilt(path))


def without(index: int) -> Callable[[list[Operation]], list[Operation]]:
    return lambda table: [operation for operation in table if operation.index != index]


def recomputed_as_forward(table: list[Operation]) -> list[Operation]:
    return [dataclasses.replace(op, phase=op.phase.replace("recompute", "forward")) for op in table]


def counted_twice(table: list[Operation]) -> list[Operation]:
    return [*table, table[0]]


@pytest.mark.parametrize("edit", [without(0), without(4), recomputed_as_forward, counted_twice])
def test_a_table_that_lost_or_gained_an_operation_turns_the_check_red(path: Path, edit) -> None:
    with pytest.raises(AssertionError):
        check(rebuilt(path, edit))
