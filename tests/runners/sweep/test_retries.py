"""Which cells of a run a resumed sweep measures again."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from results.records import Ceiling, Run
from runners.sweep.options import cells_done, parser
from tests.support.made_up.made_up_runs import SITTING, a_run, new_store

BUSY = "note: others used 9% of the processors while this was timed"
HOME = SITTING.sitting


def ceiling(unit: str, gflops: float, reason: str = "", sitting: str = HOME) -> Ceiling:
    return Ceiling(
        sitting=sitting, device="cpu", precision=unit, unit=unit, operation="matmul", shape="8x8x8", median_s=1.0,
        best_s=0.99, flop_per_s=1e9 * gflops, reason=reason,
    )  # fmt: skip


def of_unit(cell_id: str, unit: str, sitting: str = HOME, attempt: int = 1, status: str = "ok") -> Run:
    run = a_run(cell_id, attempt, status, precision=unit, sitting=sitting)
    return replace(run, convolution_unit=unit, matmul_unit=unit)


def asked(*words: str) -> argparse.Namespace:
    return parser().parse_args(words)


def test_cells_of_a_session_beside_others_are_measured_again_until_a_calm_one_has_them(tmp_path: Path) -> None:
    """Of fp32 the fastest kernel was timed beside others, of bf16 a slower one; what failed has no utilization."""
    with new_store(tmp_path / "run") as store:
        store.append_ceilings([ceiling("fp32", 200, BUSY), ceiling("fp32", 100)])
        store.append_ceilings([ceiling("bf16", 400), ceiling("bf16", 300, BUSY)])
        for unit in ("fp32", "bf16"):
            store.commit(of_unit(unit, unit), {})
        store.commit(of_unit("failed", "fp32", status="crashed"), {})
        every = {"fp32": "ok", "bf16": "ok", "failed": "crashed"}
        assert cells_done(store, asked("--resume")) == every
        assert cells_done(store, asked("--resume", "--retry-ceilings")) == {"bf16": "ok", "failed": "crashed"}
        assert set(cells_done(store, asked("--resume", "--retry-ceilings", "--retry-failed"))) == {"bf16"}
        store.append_sitting(replace(SITTING, sitting="later"))
        store.append_ceilings([ceiling("fp32", 210, sitting="later")])
        store.commit(of_unit("fp32", "fp32", "later", attempt=2), {})
        assert cells_done(store, asked("--resume", "--retry-ceilings")) == every
