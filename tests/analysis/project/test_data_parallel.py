"""Definition, law: collectives, pipelines, tiles and learning curves by hand and by walking through each schedule."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from analysis.devices.memory import Link, between, links, within
from analysis.devices.peaks import lookup
from analysis.project import accelerator, domain, frontier
from analysis.project.accelerator import Accelerator, DeviceGroup, all_reduce_s, half_s
from analysis.project.frontier import CostPoint, Laws
from analysis.project.ppopp2019_case_study import Matmul, time_s

FAST = Link("fast", "nvlink", 100.0, 2.0)
SLOW = Link("slow", "network", 10.0, 3.0)


def test_time_by_hand_within_a_node() -> None:
    # 4 devices, 400 B: 3 steps of 2 s and 300 B at 100 B/s a half: 18 s; two trees 4 steps and 800 B: 16 s
    group = DeviceGroup(4, 4, FAST, SLOW)
    assert half_s(400, group) == pytest.approx(9.0)
    assert all_reduce_s(400, group) == pytest.approx(16.0)
    assert all_reduce_s(4000, group) == pytest.approx(2 * (6 + 30))  # many bytes: the ring sends fewer
    assert all_reduce_s(400, DeviceGroup(4, 4, FAST, SLOW, achieved=0.5)) == pytest.approx(8 + 16)
    assert all_reduce_s(100, DeviceGroup(2, 2, FAST, SLOW)) == pytest.approx(2 * (2 + 0.5))
    assert all_reduce_s(400, DeviceGroup(1, 1, FAST, SLOW)) == 0.0


def test_layers_beat_a_ring_through_all_nodes() -> None:
    """2 nodes of 4, 800 B. In layers: 6 + 600/100 within, then 200 B between 2: 3 + 100/10; a flat ring 21 + 70."""
    group = DeviceGroup(8, 4, FAST, SLOW)
    assert half_s(800, group) == pytest.approx(12 + 13)
    assert half_s(800, group) < 7 * 3 + 700 / 10
    alone = DeviceGroup(2, 1, FAST, SLOW)
    assert half_s(800, alone) == pytest.approx(3 + 400 / 10)


def test_links_of_known_nodes() -> None:
    """Half of what datasheets print for both ways: 600 GB/s for an A100, 900 for an H100; PCIe 4: 31.5 a way."""
    table = links()
    a100, h100, l40s = (lookup(name) for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L40S"))
    assert (within(a100).bytes_per_s, between(a100).bytes_per_s) == (300e9, 25e9)
    assert (within(h100).bytes_per_s, between(h100).bytes_per_s) == (450e9, 50e9)
    assert within(l40s) == table["PCIe 4 x16"]
    for name, pcie in (("Tesla K80", 3), ("Tesla M40", 3), ("Tesla T4", 3), ("NVIDIA H100 PCIe", 5)):
        assert within(lookup(name)) == table[f"PCIe {pcie} x16"]
    for generation, transfers in ((3, 8e9), (4, 16e9), (5, 32e9)):
        assert table[f"PCIe {generation} x16"].bytes_per_s == pytest.approx(transfers * 16 * 128 / 130 / 8, rel=1e-3)
    assert all(link.latency_s < 1e-5 and math.isfinite(link.bytes_per_s) for link in table.values())


def exact(laws: Laws, p: float, b: float) -> CostPoint:
    footprint = None if laws.delta is None else laws.delta * p
    return CostPoint(p, b, laws.flop(p, b), laws.moved_bytes(p, b), footprint)


def test_a_fit_finds_the_laws_that_points_follow() -> None:
    laws = Laws(481, 1755, 30784, 11.94)
    found = frontier.fit([exact(laws, p, b) for p in (1e8, 3e9) for b in (8, 128)])
    assert found.laws.gamma == pytest.approx(481)
    assert (found.laws.lambda_, found.laws.mu) == pytest.approx((1755, 30784))
    assert found.laws.delta == pytest.approx(11.94)
    assert max(found.worst_ratio.values()) < 1e-9


def test_a_fit_is_the_least_squares_of_relative_residuals() -> None:
    random = np.random.default_rng(3)
    points = [
        CostPoint(p, b, 500 * p * b * s, (1800 * p + 3e4 * b * math.sqrt(p)) * t)
        for (p, b), s, t in zip(
            itertools.product((1e7, 1e8, 1e9), (16, 64)), *random.uniform(0.8, 1.2, (2, 6)), strict=True
        )
    ]
    columns = np.array(
        [[p.parameters / p.moved_bytes, p.batch * math.sqrt(p.parameters) / p.moved_bytes] for p in points]
    )
    wanted = np.linalg.lstsq(columns, np.ones(6), rcond=None)[0]
    found = frontier.fit(points)
    assert (found.laws.lambda_, found.laws.mu) == pytest.approx(tuple(wanted), rel=1e-6)
    ratios = np.array([[p.parameters * p.batch / p.flop] for p in points])
    assert found.laws.gamma == pytest.approx(np.linalg.lstsq(ratios, np.ones(6), rcond=None)[0][0])
    law = [found.laws.flop(p.parameters, p.batch) / p.flop - 1 for p in points]
    assert found.worst_ratio["flop"] == pytest.approx(max(map(abs, law)))


@pytest.mark.parametrize("sizes", [(5, 7, 9, 4), (8, 3, 8, 4), (1, 2, 3, 64)])
def test_tiles_stream_their_inputs_again_one_by_one(sizes: tuple[int, int, int, int]) -> None:
    m, k, n, tile = sizes
    elements = 0
    for top, left in itertools.product(range(0, m, tile), range(0, n, tile)):
        rows, columns = min(tile, m - top), min(tile, n - left)
        elements += rows * k + k * columns + 2 * rows * columns  # a panel of each, and the output read and written
    assert Matmul(m, k, n).moved_bytes(tile) == 4 * elements
    assert Matmul(m, k, n).moved_bytes(None, 2) == 2 * (m * k + k * n + m * n)


TARGET = Accelerator("a", 1000.0, 100.0, 1e9, compute_ratio=0.8, memory_ratio=0.5)


def test_a_step_is_bound_by_the_slower_side() -> None:
    step = TARGET.step(flop=8000, moved_bytes=50)
    assert (step.time_s, step.bound, step.utilization_ratio) == (pytest.approx(10.0), "arithmetic", pytest.approx(0.8))
    step = TARGET.step(flop=800, moved_bytes=500)
    assert (step.time_s, step.bound, step.utilization_ratio) == (pytest.approx(10.0), "memory", pytest.approx(0.08))
    assert TARGET.ridge == pytest.approx(16.0)
    assert TARGET.step(16 * 7, 7).bound == "arithmetic", "both sides are as slow at the ridge"


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
    with pytest.raises(ValueError, match=r"Tesla K80: unknown unit: expected fp64 or fp32, got 'bf16'"):
        accelerator.of_device("Tesla K80", "bf16", TARGET)


def test_sub_batches_are_the_first_of_their_kind() -> None:
    def flop(batch: int) -> float:
        return 40.0 * batch

    def moved(batch: int) -> float:
        return 1000.0 + 0.3 * batch

    def time(batch: int) -> float:
        return TARGET.step(flop(batch), moved(batch)).time_s

    def cost(batch: int) -> tuple[float, float]:
        return flop(batch), moved(batch)

    most = 4096
    found = accelerator.sub_batches(cost, TARGET, most)
    every = range(1, most + 1)
    least = min(time(c) / c for c in every)
    assert found.ridge == next(b for b in every if flop(b) / moved(b) >= 16)
    assert found.fastest == next(b for b in every if time(b) / b <= 1.01 * least)
    assert found.saturated == next(b for b in every if flop(b) / moved(b) >= 0.95 * flop(most) / moved(most))
    assert found.ridge == 455, "40 b ÷ (1000 + 0.3 b) is 16 at 454.5"
    assert accelerator.sub_batches(cost, replace(TARGET, compute_ratio=1.0, memory_ratio=1e-9), most).ridge is None


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
    assert accelerator.communication_s(80.0, 100.0, 1, 50.0) == 0.0, "alone, nobody has anything to send"
    assert accelerator.communication_s(80.0, 100.0, 8, 100.0, 0.5) == pytest.approx(2 * 7 / 8 * 80 / 50 + 16)


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


def test_an_error_and_its_data_are_inverse() -> None:
    curve = {"alpha": 60.0, "beta_g": -0.3, "floor": 0.25}
    assert domain.error_after(1e6, **curve, guess=6.0) == pytest.approx(60 * 10**-1.8 + 0.25)
    for samples in (1e4, 1e6, 1e9):
        assert domain.samples_for(domain.error_after(samples, **curve), **curve) == pytest.approx(samples)


def test_an_epoch_is_its_steps_on_each_worker() -> None:
    assert accelerator.epoch_s(1000, 10, 5, 2.0) == pytest.approx(40.0)


def test_a_fit_takes_nothing_away() -> None:
    points = [
        CostPoint(p, b, p * b, 10 * p * 1.0 / b) for p in (1e6, 1e8) for b in (1, 4)
    ]  # fewer bytes in larger batches
    assert frontier.fit(points).laws.mu == 0.0


def test_a_data_scale_is_the_ratio_of_two_inverses_whatever_alpha_is() -> None:
    for alpha in (3.0, 40.0):
        more, less = (domain.samples_for(error, alpha, -0.2, 0.1) for error in (0.3, 0.9))
        assert domain.data_scale(0.9, 0.3, -0.2, 0.1) == pytest.approx(more / less)
    assert domain.data_scale(0.8, 0.4, -0.5) == pytest.approx(4.0), "half the error by the root of the data"


def test_an_intensity_has_its_limits() -> None:
    laws = Laws(481, 1755, 30784)
    # the batch, then the model, without end: √p · gamma/mu, and b · gamma/lambda
    assert laws.intensity(23.8e9, 1e12) == pytest.approx(math.sqrt(23.8e9) * 481 / 30784, rel=1e-3)
    assert laws.intensity(1e24, 128) == pytest.approx(128 * 481 / 1755, rel=1e-3)


def test_products_follow_one_another_each_at_its_own_roofline() -> None:
    wide, thin = Matmul(100, 100, 100), Matmul(1, 100, 1)
    alone = [TARGET.step(p.flop, p.moved_bytes()).time_s for p in (wide, thin)]
    assert TARGET.step(thin.flop, thin.moved_bytes()).bound == "memory"
    assert time_s([wide, thin], TARGET) == pytest.approx(sum(alone))


def test_a_backward_pass_has_two_products_of_as_many_flop() -> None:
    product = Matmul(4, 6, 10)
    assert product.flop == 2 * 4 * 6 * 10
    inputs, weights = product.gradients()
    assert (inputs.m, inputs.n) == (4, 6), "as the first matrix"
    assert (weights.m, weights.n) == (6, 10), "as the second"
    assert inputs.flop == weights.flop == product.flop
