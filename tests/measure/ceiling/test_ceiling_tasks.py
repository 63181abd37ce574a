"""Definition, injected fault: one row of `runners.ceiling` on this CPU, with its flags and threads."""

import pytest
import torch

from measure.ceiling.ceilings import Bench
from measure.ceiling.machine import copies_and_views, timed
from measure.ceiling.trials import Move, Trial
from measure.device import apply_precision as precision
from measure.timing.clocks import clock_for
from results.records.cell import Ceiling


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def blank(precision: str = "fp32", threads: int | None = None) -> Ceiling:
    return Ceiling(session="", device="cpu", precision=precision, unit="", operation="", shape="kept", threads=threads)


@pytest.mark.parametrize("unit", ["", "fp8"])
def test_a_kernels_row(unit):
    row = timed(blank(), Trial("matmul", (64, 64, 64), unit=unit), 5.0)
    assert row.flop == 2 * 64**3
    assert (row.shape, row.status) == ("kept", "ok")


def test_a_product_in_fp8_is_that_of_its_rounded_operands():
    bench = Bench("cpu", torch.bfloat16, clock_for("cpu"), 0.0)
    bench._normal = lambda *sizes: torch.full(sizes, 1.0625)  # 1 + 1/16, which fp8 rounds to 1
    assert set(bench.prepared(Trial("matmul", (16, 32, 64), unit="fp8"))().flatten().tolist()) == {64.0}


def test_copies_and_launches_are_rows(monkeypatch):
    copied = timed(blank(""), Move("triad", 1 << 20, "memory"), 1.0)
    assert (copied.operation, copied.moved_bytes, copied.status) == ("triad", 3 << 20, "ok")
    assert timed(blank(""), "call", 1.0).best_s > 0
    copies, views = copies_and_views("cpu")
    assert views == ("call",)
    assert {move.family for move in copies} == {"memory", "cache"}
    monkeypatch.setattr("measure.device.environment.device_facts", lambda _: {"memory_bytes": 1 << 36})
    monkeypatch.setattr("measure.ceiling.machine.last_cache_bytes", lambda _: 1 << 25)
    assert copies_and_views("cuda:1")[1] == ("launch", "call")


def test_flags_that_do_not_take_are_refused(monkeypatch):
    monkeypatch.setattr(precision, "check", lambda *_: ["a: expected b, found c"])
    with pytest.raises(ValueError, match="a: expected b, found c"):
        timed(blank(), Trial("matmul", (8, 8, 8)), 1.0)


def test_each_row_has_its_number_of_threads(threads: int):
    timed(blank(threads=threads + 1), Trial("matmul", (8, 8, 8)), 1.0)
    assert torch.get_num_threads() == threads + 1
    timed(blank("", threads), "call", 1.0)
    assert torch.get_num_threads() == threads
    timed(blank(""), Move("copy", 1 << 20, "memory"), 1.0)
    assert torch.get_num_threads() == threads  # None leaves it alone
