"""Definition: what copies, triads and launches do, and their bytes and times by hand on a made-up clock."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from analysis.roofline import machine_of
from measure.ceiling import machine
from measure.ceiling.ceilings import Bench
from measure.ceiling.machine import measure_machine
from measure.ceiling.trials import Move
from measure.timing.clocks import Clock, CudaClock
from results.records.cell import Ceiling

BLANK = Ceiling(session="", device="cpu", precision="", unit="", operation="", shape="")


@pytest.fixture(autouse=True)
def _without_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call waits for a real processor: it would be made again."""
    monkeypatch.setattr("measure.ceiling.ceilings.run_wait_s", lambda: 0.0)


def ticking() -> SimpleNamespace:
    """A clock whose event pairs are 2 ms apart; the host's goes on by 1 s at each look."""
    now = itertools.count()
    return SimpleNamespace(
        wall_s=lambda: float(next(now)), event=lambda: 0.0, between_s=lambda *_: 0.002, synchronize=lambda: None
    )


def bench(clock: object = None) -> Bench:
    return Bench("cpu", torch.float32, clock or Clock(), math.inf)


def test_a_copy_copies_and_a_triad_adds_a_multiple():
    device = torch.device("cpu")
    torch.testing.assert_close(machine._prepared(device, Move("copy", 4 << 20, "cache"))(), expected(1 << 20))
    found = machine._prepared(device, Move("triad", 4 << 20, "cache"))()
    torch.testing.assert_close(found, expected(1 << 20) * 2.5)


def expected(elements: int) -> torch.Tensor:
    """Random numbers that repeat after 2**18 of them."""
    pattern = torch.randn(1 << 18, generator=torch.Generator().manual_seed(0))
    return pattern.repeat(elements >> 18)


@pytest.mark.parametrize(("operation", "operands"), [("copy", 2), ("triad", 3)])
def test_a_row_in_memory_by_hand(operation: str, operands: int):
    found = machine.move_row(bench(ticking()), BLANK, Move(operation, 1 << 20, "memory"), 1)
    assert found.moved_bytes == operands << 20
    assert found.bytes_per_s == pytest.approx((operands << 20) / 0.002)
    assert (found.median_s, found.mean_s, found.best_s) == (0.002, pytest.approx(0.002), 0.002)
    assert (found.operation, found.shape, found.family) == (operation, "1 MiB an operand", "memory")
    assert (found.status, found.flop_per_s) == ("ok", None)


def test_within_a_cache_calls_in_a_row_are_timed_as_one(monkeypatch):
    calls = []
    monkeypatch.setattr(machine, "_prepared", lambda *_: lambda: calls.append(1))
    monkeypatch.setattr("measure.ceiling.ceilings.MOST_REPEATS", 1)
    its = bench(ticking())
    flushes = []
    its._flush = lambda: flushes.append(1)
    # 2 MiB a call: 128 calls are 256 MiB; one round that does not count, one that does
    found = machine.move_row(its, BLANK, Move("copy", 1 << 20, "cache"), 1)
    assert len(calls) == 2 * 128
    assert flushes == []
    assert found.bytes_per_s == pytest.approx((2 << 20) / (0.002 / 128))
    machine.move_row(its, BLANK, Move("copy", 1 << 20, "memory"), 1)
    assert len(calls) == 2 * 128 + 2
    assert flushes == [1]  # before the timed call alone


def test_what_a_profile_needs_within_seconds(monkeypatch):
    monkeypatch.setattr("measure.ceiling.trials.SIDES", {"cpu": (32, 64)})
    monkeypatch.setattr("measure.ceiling.ceilings.PROBE_SIDE", {"cpu": 64})
    monkeypatch.setattr("measure.ceiling.trials.MOST_IMAGES", 1)
    monkeypatch.setattr("measure.ceiling.machine.moves", lambda *_: [Move("copy", 1 << 20, "memory")] * 5)
    rows = measure_machine("cpu", ("fp32", "tf32"), 60.0)  # all have their 20 calls long before
    by_status = {row.precision: row.status for row in rows if row.operation == "matmul"}
    assert by_status == {"fp32": "ok", "tf32": "unavailable"}
    assert [row.operation for row in rows if not row.precision] == ["copy", "copy", "call"]
    assert {row.threads for row in rows} == {torch.get_num_threads()}
    assert all(row.device_name for row in rows)
    assert {row.status for row in rows if row.precision != "tf32"} == {"ok"}


@pytest.mark.gpu
def test_a_gpus_machine_comes_in_seconds():
    """Needs a CUDA device with tensor units: they are faster than its cores, and every figure is there."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    clock = CudaClock("cuda")
    begun_s = clock.wall_s()
    rows = measure_machine("cuda", ("amp-fp16",), 6.0)
    assert clock.wall_s() - begun_s < 25
    found = machine_of(rows, "cuda", rows[0].device_name)
    assert found.peak_by_unit["fp16"] > found.peak_by_unit["fp32"] > 1e12
    assert found.bytes_per_s > 50e9
    assert 0.5e-6 < found.launch_s < 50e-6
