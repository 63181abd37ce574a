"""Accelerators, sub-batches and several accelerators, against schedules that are gone through step by step."""

from __future__ import annotations

import random

import pytest

from analysis.project import accelerator
from analysis.project.accelerator import Accelerator
from analysis.project.ppopp2019_case_study import Product, time_s

TARGET = Accelerator("a", 1000.0, 100.0, 1e9, compute_ratio=0.8, memory_ratio=0.5)


def test_a_step_is_bound_by_the_slower_side() -> None:
    step = TARGET.step(flop=8000, moved_bytes=50)
    assert (step.time_s, step.bound, step.utilization_ratio) == (pytest.approx(10.0), "arithmetic", pytest.approx(0.8))
    step = TARGET.step(flop=800, moved_bytes=500)
    assert (step.time_s, step.bound, step.utilization_ratio) == (pytest.approx(10.0), "memory", pytest.approx(0.08))
    assert TARGET.nominal_ridge == pytest.approx(10.0)
    assert TARGET.ridge == pytest.approx(16.0)
    assert TARGET.step(16 * 7, 7).bound == "arithmetic", "both sides are as slow at the ridge"


def test_products_follow_one_another_each_at_its_own_roofline() -> None:
    wide, thin = Product(100, 100, 100), Product(1, 100, 1)
    alone = [TARGET.step(p.flop, p.moved_bytes()).time_s for p in (wide, thin)]
    assert TARGET.step(thin.flop, thin.moved_bytes()).bound == "memory"
    assert time_s([wide, thin], TARGET) == pytest.approx(sum(alone))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"compute_ratio": 0.0}, "compute_ratio: expected a share"),
        ({"memory_ratio": 1.1}, "memory_ratio: expected a share"),
        ({"peak_flop_per_s": 0.0}, "peak_flop_per_s: expected a number above 0"),
        ({"bandwidth_bytes_per_s": float("inf")}, "bandwidth_bytes_per_s"),
    ],
)
def test_an_accelerator_that_cannot_be_is_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Accelerator(**{"name": "a", "peak_flop_per_s": 1.0, "bandwidth_bytes_per_s": 1.0, **change})


def test_a_device_of_the_table_is_a_target_with_the_peak_of_the_unit() -> None:
    found = accelerator.of_device("NVIDIA A100-SXM4-80GB", "bf16", TARGET)
    assert (found.peak_flop_per_s, found.bandwidth_bytes_per_s, found.element_bytes) == (312e12, 2039e9, 2)
    assert (found.compute_ratio, found.memory_ratio, found.memory_bytes) == (0.8, 0.5, 80e9)
    with pytest.raises(ValueError, match=r"expected a device of the table.*nearest NVIDIA A100-SXM4-80GB"):
        accelerator.of_device("A100-SXM4-81GB", "bf16", TARGET)
    with pytest.raises(ValueError, match=r"Tesla K80: unknown dtype with a peak: expected fp64 or fp32, got 'bf16'"):
        accelerator.of_device("Tesla K80", "bf16", TARGET)


def test_sub_batches_are_the_first_of_their_kind() -> None:
    def flop(batch: int) -> float:
        return 40.0 * batch

    def moved(batch: int) -> float:
        return 1000.0 + 0.3 * batch

    def time(batch: int) -> float:
        return TARGET.step(flop(batch), moved(batch)).time_s

    most = 4096
    found = accelerator.sub_batches(flop, moved, time, TARGET.ridge, most)
    every = range(1, most + 1)
    assert found.ridge == next(b for b in every if flop(b) / moved(b) >= 16)
    assert found.fastest == next(b for b in every if time(b) / b <= 1.01 * min(time(c) / c for c in every))
    assert found.saturated == next(b for b in every if flop(b) / moved(b) >= 0.95 * flop(most) / moved(most))
    assert found.ridge == 455, "40 b ÷ (1000 + 0.3 b) is 16 at 454.5"
    assert accelerator.sub_batches(flop, moved, time, 1e9, most).ridge is None


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_ring_sums_in_as_many_turns_as_it_is_said_to_take(workers: int) -> None:
    """Each worker has as many chunks as there are workers, and passes one on each turn, until all have all sums."""
    held = [[{(worker, chunk)} for chunk in range(workers)] for worker in range(workers)]
    turns = 0
    for phase in range(2):
        for turn in range(workers - 1):
            shift = turn if phase == 0 else turn - 1
            sent = [(worker, (worker - shift) % workers) for worker in range(workers)]
            passed = [(worker, chunk, set(held[worker][chunk])) for worker, chunk in sent]
            for worker, chunk, content in passed:
                held[(worker + 1) % workers][chunk] |= content
            turns += 1
    assert all(held[w][c] == {(v, c) for v in range(workers)} for w in range(workers) for c in range(workers))
    nbytes, rate = 960.0, 10.0
    assert accelerator.ring_all_reduce_s(nbytes, workers, rate) == pytest.approx(turns * nbytes / workers / rate)


def test_sparse_gradients_are_gathered_and_both_take_the_achieved_rate() -> None:
    assert accelerator.sparse_gradient_bytes(128, 20, 19968) == 128 * 20 * 19968 * 4
    assert accelerator.gather_s(100.0, 8, 50.0) == pytest.approx(16.0)
    assert accelerator.gather_s(100.0, 1, 50.0) == 0.0, "alone, nobody has anything to send"
    assert accelerator.communication_s(80.0, 100.0, 8, 100.0, 0.5) == pytest.approx(2 * 7 / 8 * 80 / 50 + 16)
    with pytest.raises(ValueError, match="share of the link"):
        accelerator.communication_s(1.0, 1.0, 2, 1.0, 0.0)
    with pytest.raises(ValueError, match="workers: expected 1 or more, got 0"):
        accelerator.ring_all_reduce_s(1.0, 0, 1.0)


@pytest.mark.parametrize("stages", [[2.0, 2.0], [1.0, 3.0, 2.0], [5.0]])
def test_a_pipeline_takes_what_going_through_its_schedule_takes(stages: list[float]) -> None:
    """Layer l begins step t when it has done step t - 1 and layer l - 1 has done step t."""
    length = 7
    done = [0.0] * len(stages)
    for _ in range(length):
        before = 0.0
        for layer, time in enumerate(stages):
            done[layer] = before = max(before, done[layer]) + time
    assert accelerator.pipelined_s(stages, length, after_s=4.0) == pytest.approx(done[-1] + 4.0)


def test_what_is_divided_fills_the_emptiest_first() -> None:
    random.seed(5)
    for _ in range(20):
        pieces = [random.choice([0.0, 3.0, random.uniform(0, 20)]) for _ in range(4)]
        drops, split = 4000, list(pieces)
        split[1], drop = 0.0, pieces[1] / 4000
        for _ in range(drops):
            split[split.index(min(split))] += drop
        assert accelerator.evened(pieces, 1) == pytest.approx(tuple(split), abs=2 * max(drop, 1e-9))
        assert sum(accelerator.evened(pieces, 1)) == pytest.approx(sum(pieces))


def test_an_epoch_is_its_steps_on_each_worker() -> None:
    assert accelerator.epoch_s(1000, 10, 5, 2.0) == pytest.approx(40.0)
    with pytest.raises(ValueError, match="batch"):
        accelerator.epoch_s(1000, 0, 5, 2.0)
