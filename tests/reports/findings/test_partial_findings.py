"""Findings say of a sum, a claim and a table no more than the rows hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reports.findings import low_utilization, traffic
from reports.findings.counts import counters
from results.records import Agreement


def cell(**more: Any) -> Any:
    return SimpleNamespace(**{"model": "m", "cell_id": "c", "executed": {"matmul/float32": 1}, **more})


@pytest.mark.parametrize(
    ("executed", "warnings", "told"),
    [({"matmul/float32": 1}, (), True), ({}, (), False), ({"matmul/float32": 1}, ("executed_differs: 1",), False)],
)
def test_what_one_real_step_executed_is_told_where_it_was_recorded_and_agrees(
    executed: Any, warnings: tuple[str, ...], told: bool
) -> None:
    each = SimpleNamespace(run=cell(executed=executed), row=SimpleNamespace(warnings=warnings))
    assert bool(low_utilization._executed([each])) == told


@pytest.mark.parametrize(("times", "share"), [((1.0, 2.0), 0.3), ((1.0, None), None), ((), None)])
def test_the_products_share_of_a_step_is_of_all_of_them(
    monkeypatch: pytest.MonkeyPatch, times: tuple[float | None, ...], share: float | None
) -> None:
    """10 s under the profiler, 3 s of them in two products; with one that was not timed nobody knows."""
    table = [SimpleNamespace(phase="forward", attributes={})]
    counted = SimpleNamespace(read_bytes=1, written_bytes=1, model_flop=4, flop_per_byte=2.0)
    monkeypatch.setattr(traffic, "read_operations", lambda path, trace_id: (table, ()))
    monkeypatch.setattr(traffic, "count_table", lambda table: counted)
    monkeypatch.setattr(traffic, "fused", lambda table, storages: [(0, 2)])
    monkeypatch.setattr(traffic.registry, "model_flop", lambda operation: 4)
    run = SimpleNamespace(
        path=None,
        work_times=[SimpleNamespace(cell_id="c", work="batch", profiled_time_s=10.0)],
        products=lambda cell_id, work: [SimpleNamespace(time_s=time_s) for time_s in times],
    )
    row: Any = SimpleNamespace(time_s=1.0, peak_flop_per_s=None)
    found = traffic._traffic(run, cell(trace_id="t"), row, None)  # type: ignore[arg-type]
    assert found.products_ratio == (None if share is None else pytest.approx(share))


def test_counters_without_an_exact_count_are_open() -> None:
    rows = [
        Agreement(cell_id="c", attempt=1, model="m", batch_size=1, counter=name, phase="forward")
        for name in ("fvcore", "thop", "ptflops")
    ]
    run: Any = SimpleNamespace(agreement=rows, measured_cells=[], on_gpu=False, name="run")
    run.data = SimpleNamespace(manifest=SimpleNamespace(created_at=""))
    section = counters([run], "results")
    assert "No total of a counter in run stands beside an exact count" in section.answer


def test_the_run_on_a_gpu_answers_though_fewer_of_its_cells_converged() -> None:
    def a_run(on_gpu: bool, converged: int, created_at: str) -> Any:
        models = [*low_utilization.LOW, "resnet18", "vgg16"]
        cells = [cell(model=name, status="ok" if i < converged else "wide") for i, name in enumerate(models)]
        data = SimpleNamespace(manifest=SimpleNamespace(created_at=created_at))
        return SimpleNamespace(on_gpu=on_gpu, measured_cells=cells, data=data)

    gpu, cpu, later = a_run(True, 1, "2026-01"), a_run(False, 4, "2026-02"), a_run(False, 4, "2026-03")
    assert low_utilization.best_timed([cpu, gpu, later]) is gpu
    assert low_utilization.best_timed([later, cpu]) is later, "of equal ones the latest"
