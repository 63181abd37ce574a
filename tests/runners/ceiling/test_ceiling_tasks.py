"""What the worker of `runners.ceiling` does for one row: flags, threads and share of time, on this CPU."""

from __future__ import annotations

import time

import pytest
import torch

from measure.ceiling.ceilings import Bench
from measure.ceiling.trials import Move, Trial
from measure.device import apply_precision as precision
from measure.timing.clocks import clock_for
from results.errors import Unavailable
from results.records.samples import Ceiling
from runners.ceiling import tasks as ceiling_tasks


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def blank(precision: str = "fp32", threads: int | None = None) -> Ceiling:
    return Ceiling(sitting="", device="cpu", precision=precision, unit="", operation="", shape="kept", threads=threads)


@pytest.mark.parametrize("unit", ["", "fp8"])
def test_a_kernels_row(unit):
    row = ceiling_tasks.kernel(blank(), Trial("matmul", (64, 64, 64), unit=unit), 5.0)
    assert row.flop == 2 * 64**3
    assert (row.shape, row.status) == ("kept", "ok")


def test_a_product_in_fp8_is_that_of_its_rounded_operands():
    bench = Bench("cpu", torch.bfloat16, clock_for("cpu"), 0.0)
    bench._normal = lambda *sizes: torch.full(sizes, 1.0625)  # 1 + 1/16, which fp8 rounds to 1
    assert set(bench.prepared(Trial("matmul", (16, 32, 64), unit="fp8"))().flatten().tolist()) == {64.0}


def test_the_share_begins_when_the_device_has_started(monkeypatch):
    applied = precision.apply

    def slowly(*arguments):
        time.sleep(0.3)
        applied(*arguments)

    monkeypatch.setattr(precision, "apply", slowly)
    assert ceiling_tasks.kernel(blank(), Trial("matmul", (8, 8, 8)), 0.2).status == "ok"


def test_each_row_has_its_number_of_threads(threads: int):
    ceiling_tasks.kernel(blank(threads=threads + 1), Trial("matmul", (8, 8, 8)), 1.0)
    assert torch.get_num_threads() == threads + 1
    ceiling_tasks.launch(blank("", threads), "call", 1.0)
    assert torch.get_num_threads() == threads
    ceiling_tasks.copy(blank(""), Move("copy", 1 << 20, "memory"), 1.0)
    assert torch.get_num_threads() == threads  # None leaves it alone


def test_copies_and_launches_are_rows():
    copied = ceiling_tasks.copy(blank(""), Move("triad", 1 << 20, "memory"), 1.0)
    assert (copied.operation, copied.moved_bytes, copied.status) == ("triad", 3 << 20, "ok")
    assert ceiling_tasks.launch(blank(""), "call", 1.0).best_s > 0
    assert ceiling_tasks.views("cuda:1") == ("launch", "call")
    assert {move.family for move in ceiling_tasks.copies("cpu")} == {"memory", "cache"}


def test_what_the_device_lacks_is_refused():
    with pytest.raises(Unavailable, match="tf32 on cpu"):
        ceiling_tasks.plan(blank("tf32"))


def test_flags_that_do_not_take_are_refused(monkeypatch):
    monkeypatch.setattr(precision, "check", lambda *_: ["a: expected b, found c"])
    with pytest.raises(ValueError, match="a: expected b, found c"):
        ceiling_tasks.kernel(blank(), Trial("matmul", (8, 8, 8)), 1.0)


def test_the_plan_is_the_sweep_at_the_rate_that_was_probed(monkeypatch):
    monkeypatch.setattr("measure.ceiling.ceilings.Bench.probe", lambda self: 200e9)
    assert ceiling_tasks.plan(blank()) == ceiling_tasks.sweep("cpu", 200e9)


def test_what_a_profile_needs_in_one_call(monkeypatch):
    asked = []
    monkeypatch.setattr("measure.ceiling.quick.measure_machine", lambda *told: asked.append(told) or ["rows"])
    assert ceiling_tasks.quick("cpu", ("amp-bf16",), 3.0) == ["rows"]
    device, precisions, clock, budget_s = asked[0]
    assert (device, precisions, budget_s) == ("cpu", ("amp-bf16",), 3.0)
    assert clock.wall_s() > 0
