"""Definition, law: sums of a step's module tree by hand, which add up to the step, and a machine made of rows."""

from dataclasses import replace
from typing import Any

import pytest

from analysis.devices import ceilings, peaks
from analysis.devices.precisions import UNITS
from analysis.module_tree import tree
from analysis.roofline import machine_of, rows_of
from reports.profile import conservation
from results.records.answers import StepModule
from results.records.cell import Ceiling
from tests.support.made_up.made_up_profile import (
    ATTRIBUTED_MS,
    BETWEEN_MS,
    MODEL_FLOP,
    MODULES,
    MS,
    OPERATIONS,
    PROFILE,
    profile,
)


def test_the_tree_conserves() -> None:
    assert conservation(PROFILE, tree(PROFILE)[""]) == {
        f"operations {ATTRIBUTED_MS:.3f} ms + between them {BETWEEN_MS:.3f} ms = "
        f"step {ATTRIBUTED_MS + BETWEEN_MS:.3f} ms": True,
        f"FLOP of the tree {MODEL_FLOP:,} = of the step {MODEL_FLOP:,}": True,
        "parameters of the tree 100 = of the model 100": True,
    }


@pytest.mark.parametrize(
    "broken",
    [
        profile(step_times_s=(0.0281, 0.0281)),
        profile(between_s={"forward": 1 * MS}),
        profile(parameters=101),
        profile(modules=(*MODULES[:-1], replace(MODULES[-1], own_parameters=21))),
    ],
)
def test_what_does_not_add_up_is_seen(broken: object) -> None:
    assert not all(conservation(broken, tree(broken)[""]).values())  # type: ignore[arg-type]


def test_a_parameter_of_two_modules_counts_once() -> None:
    """tied: has head's weight of 20 and none of its own; the tree's sum stays 100, its own line says 20."""
    tied = StepModule(module="tied", type="Linear", parameters=20)
    found = profile(modules=(*MODULES, tied))
    nodes = tree(found)
    assert (nodes["tied"].parameters, nodes["tied"].counted_parameters) == (20, 0)
    assert all(conservation(found, nodes[""]).values())


def test_an_operation_of_no_module_counts_for_the_nearest_above() -> None:
    strange = replace(OPERATIONS[3], module="head.gone.away")
    nodes = tree(profile(operations=(*OPERATIONS[:3], strange, *OPERATIONS[4:])))
    assert nodes["head"].forward_flop == 2000


def row(operation: str = "matmul", unit: str = "fp32", **more: Any) -> Ceiling:
    values: dict[str, Any] = {"session": "", "device": "cuda", "precision": "", "shape": "s"}
    return Ceiling(operation=operation, unit=unit, **{**values, **more})


ROWS = [
    row(flop_per_s=3.0),
    row("convolution", flop_per_s=5.0, layout="channels_first", shape="c"),
    row("convolution", flop_per_s=8.0, layout="channels_last", shape="l"),
    row("convolution", flop_per_s=7.0, layout="channels_last"),
    row("convolution", "bf16", flop_per_s=90.0, layout="channels_last"),
    row("copy", "", bytes_per_s=4.0, family="memory", shape="128 MiB"),
    row("triad", "", bytes_per_s=6.0, family="memory", shape="256 MiB"),
    row("copy", "", bytes_per_s=50.0, family="cache"),
    row("copy", "", family="memory", status="unavailable"),
    row("launch", "", best_s=4e-6, median_s=5e-6),
    row("launch", "", best_s=3e-6, median_s=6e-6, shape="500 times"),
    row("call", "", best_s=2e-6),
]


def test_a_machine_by_hand():
    found = machine_of(ROWS, "cuda:1", "NVIDIA H200")
    assert found.peak_by_unit == {"fp32": 8.0, "bf16": 90.0}
    assert found.bytes_per_s == 6.0
    assert found.launch_s == 3e-6
    sheet = peaks.lookup("NVIDIA H200")
    assert found.datasheet_by_unit == {unit: sheet.peaks[unit] for unit in UNITS if unit in sheet.peaks}
    assert found.datasheet_bytes_per_s == sheet.bandwidth_bytes_per_s == 4.8e12
    assert (found.device, found.device_name) == ("cuda:1", "NVIDIA H200")
    assert found.sources["fp32"] == "fp32 convolution l channels_last, measured here"
    assert found.sources["bytes_per_s"] == "triad, 256 MiB, measured here"
    assert found.sources["launch_s"] == "launch, 500 times, measured here"
    assert "H200 datasheet" in found.sources["datasheet fp32"]


def test_on_a_cpu_a_call_is_what_starting_costs_and_there_is_no_sheet():
    cpu = [row("launch", "", device="cpu", best_s=1.0), row("call", "", device="cpu", best_s=2.0)]
    found = machine_of(cpu, "cpu", "NVIDIA H200")
    assert found.launch_s == 2.0
    assert (found.datasheet_by_unit, found.datasheet_bytes_per_s) == ({}, None)


def test_only_rows_of_this_device_and_these_threads_count():
    rows = [
        row(device="cpu", threads=1),
        row(device="cpu", threads=2),
        row(device="cpu"),
        row(device="cpu", threads=2, device_name="other"),
        row(device="cpu", threads=2, device_name="mine"),
        row(device="cuda"),
    ]
    assert rows_of(rows, "cpu", "mine") == [rows[0], rows[1], rows[2], rows[4]]
    assert rows_of(rows, "cpu", "mine", 2) == [rows[1], rows[2], rows[4]]
    assert rows_of(rows, "cuda:1", "mine") == [rows[5]]


# --- what others reached ---


@pytest.mark.parametrize(
    ("name", "unit", "rates"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", [794.5e12]),
        ("H100 80GB HBM3", "fp8", [1402.6e12]),
        ("NVIDIA H100 PCIe", "bf16", []),
        ("NVIDIA A100-PCIE-80GB", "bf16", [252.9e12]),  # another spelling of the same row
        ("NVIDIA H200", "bf16", [788e12]),
        ("NVIDIA H200", "tf32", []),
        ("Nothing", "bf16", []),
    ],
)
def test_figures_of_a_device(name: str, unit: str, rates: list[float]):
    assert [figure.flop_per_s for figure in ceilings.published_rates(name, unit)] == rates


def test_a_module_has_what_is_below_it() -> None:
    """body: the convolution and the normalisation, both passes."""
    body = tree(PROFILE)["body"]
    assert (body.forward_flop, body.backward_flop, body.other_flop) == (8000, 16000, 300)
    assert (body.forward_time_s, body.backward_time_s) == pytest.approx((7 * MS, 14 * MS))
    assert (body.optimizer_time_s, body.operations, body.kernels) == (None, 4, 4.0)
    assert body.moved_bytes == 2000 + 2000 + 3000 + 4000
    assert (body.parameters, body.counted_parameters, body.depth) == (80, 80, 1)
    assert body.children == ("body.0", "body.1")
    assert body.waited_s == pytest.approx(1.5 * MS)


def test_utilization_counts_the_waits() -> None:
    """body: 24000 / 4e6 = 6 ms of 21 and 1.5 waited; head: 6000 / 4e6 = 1.5 ms of 3; a normalisation has no product."""
    nodes = tree(PROFILE)
    assert nodes["body"].utilization_ratio == pytest.approx(6 / 22.5)
    assert nodes["head"].utilization_ratio == pytest.approx(0.5)
    assert nodes["body.1"].utilization_ratio == 0
    assert nodes["body"].flop_per_s == pytest.approx(24_000 / (22.5 * MS))  # 1.5 ms of waits: the time of `used`, too


def test_a_module_is_bound_by_what_takes_most_of_its_time() -> None:
    """body: arithmetic 12 ms, memory 9, waits 1.5; the step: arithmetic 15, memory 10.5, launch 0.5."""
    nodes = tree(PROFILE)
    bounds = {path: nodes[path].bound for path in ("", "body", "body.0", "body.1", "head")}
    assert bounds == {"": "arithmetic", "body": "arithmetic", "body.0": "arithmetic", "body.1": "memory"} | {
        "head": "arithmetic"
    }


def test_recomputation_takes_time_and_is_no_model_flop() -> None:
    """The convolution calculated again in the backward pass: 4 ms more, 8000 FLOP of their own."""
    again = replace(OPERATIONS[0], index=9, phase="recompute", waited_s=0.0)
    found = profile(operations=(*OPERATIONS, again), step_times_s=(0.032,))
    nodes = tree(found)
    assert (nodes["body"].backward_flop, nodes["body"].recompute_flop) == (16_000, 8000)
    assert nodes["body"].backward_time_s == pytest.approx(18 * MS)
    assert all(conservation(found, nodes[""]).values())
