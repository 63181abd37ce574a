"""Definition: ratios of variants to the first of their model and batch by hand, which one is first, what is none."""

from dataclasses import replace
from typing import Any

import pytest

from cleaning.reconcile.variants import split_by_device, variants
from results.records.answers import Utilization
from results.records.cell import Run, Sample, SessionRow
from results.store.layout import key_of
from tests.support.made_up.made_up_runs import SESSION, a_run

OPTIONS = {"precisions": ["tf32", "fp32"], "layout": ["channels_first"], "compile": [False, True], "optimizer": "sgd"}


def blocks(run: Run, step_s: float, scatter: float = 0.001) -> list[Sample]:
    """Ten blocks of ten steps that alternate about the mean."""
    times_s = [10 * step_s * (1 + (-1) ** each * scatter) for each in range(10)]
    return [
        Sample(cell_id=run.cell_id, attempt=1, index=i, part="measure", steps=10, start_s=float(i), wall_s=time_s)
        for i, time_s in enumerate(times_s)
    ]


def found(*cells: tuple[Run, float], options: Any = OPTIONS, **more: Any) -> list[tuple[Any, ...]]:
    samples = {(run.cell_id, 1): blocks(run, step_s, **more) for run, step_s in cells}
    rows = variants([run for run, _ in cells], samples, [SESSION], options)
    return [(row.model, row.batch_size, row.name, row.first, pytest.approx(row.ratio)) for row in rows]


def test_the_first_of_the_lists_is_the_one_that_others_are_divided_by() -> None:
    """Compiled is measured first; tf32 stands first among the precisions: 0.02 ÷ 0.01 = 2, 0.02 ÷ 0.04 = 0.5."""
    cells = (
        (a_run("a", precision="fp32", compile=True), 0.01),
        (a_run("b", precision="fp32"), 0.04),
        (a_run("c", precision="tf32"), 0.02),
        (a_run("d", precision="fp32", batch_size=16), 0.03),
    )
    assert found(*cells) == [
        ("resnet18", 8, "precision=tf32, compile=false", True, 1.0),
        ("resnet18", 8, "precision=fp32, compile=false", False, 0.5),
        ("resnet18", 8, "precision=fp32, compile=true", False, 2.0),
    ]


def test_the_interval_is_of_both_cells() -> None:
    first, other = a_run("a"), a_run("b", layout="channels_last")
    narrow, wide = (
        variants(
            [first, other],
            {("a", 1): blocks(first, 0.02), ("b", 1): blocks(other, 0.01, scatter)},
            [SESSION],
            {**OPTIONS, "layout": ["channels_first", "channels_last"]},
        )[1]
        for scatter in (0.001, 0.01)
    )
    for row in (narrow, wide):
        assert row.low_ratio < 2.0 < row.high_ratio
    assert wide.high_ratio - wide.low_ratio > 3 * (narrow.high_ratio - narrow.low_ratio)  # type: ignore[operator]


def test_repeats_are_one_variant_and_other_devices_and_failures_none() -> None:
    a, b = a_run("a"), a_run("b", repeat=1)
    elsewhere = replace(a_run("c", optimizer="adam"), session="another")
    failed = a_run("d", status="crashed", optimizer="adam")
    assert found((a, 0.01), (b, 0.01), (elsewhere, 0.02), (failed, 0.02)) == []
    adam = a_run("e", optimizer="adam")
    assert found((a, 0.01), (b, 0.03), (adam, 0.01)) == [
        ("resnet18", 8, "optimizer=sgd", True, 1.0),
        ("resnet18", 8, "optimizer=adam", False, 2.0),
    ]


def rows_on(*places: tuple[str, str], variant: str = "", devices: tuple[str, ...] = ()) -> list[str]:
    """The variants of repeats of one cell, each in a session on this host and device."""
    sessions = [
        SessionRow(session=f"s{n}", started_at="", host=host, device="cuda", device_name="X", device_uuid=uuid)
        for n, (host, uuid) in enumerate(places)
    ]
    names = [{"cell_id": f"c{n}", "attempt": 1, "model": "m", "batch_size": 8} for n in range(len(places))]
    runs = [Run(**name, device="cuda", session=f"s{n}", status="ok", repeat=n) for n, name in enumerate(names)]
    rows = [
        Utilization(
            **name, precision="fp32", device=devices[n] if devices else "cuda", method="exact",
            numerator_source="flopledger", denominator="datasheet", variant=variant, repeat=n,
        )
        for n, name in enumerate(names)
    ]  # fmt: skip
    found = split_by_device(rows, {key_of(run): run for run in runs}, sessions)
    assert [row.cell_id for row in found] == [row.cell_id for row in rows]
    return [row.variant for row in found]


def test_repeats_on_several_hosts_have_their_names():
    assert rows_on(("a", "u1"), ("b", "u2"), ("a", "u1")) == ["device=a", "device=b", "device=a"]


def test_a_cpu_and_a_gpu_of_one_host_have_no_repeats_in_common():
    assert rows_on(("a", ""), ("a", "u1"), devices=("cpu", "cuda")) == ["", ""]
    assert rows_on(("a", "u1"), ("b", "u2"), devices=("cuda:0", "cuda:1")) == ["device=a", "device=b"]
