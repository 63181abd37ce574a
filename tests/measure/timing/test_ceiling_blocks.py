"""Definition, known answer: order, calls and FLOP of kernels between a step's blocks, on a simulated host."""

import itertools
import math
from collections.abc import Callable

import pytest

from analysis.stats.summary import BATCHES
from analysis.utilization.step_times import paired_ceiling
from measure.timing.blocks import WarmUp, blocks_in_order, measure_blocks, warm_up
from measure.timing.rank_blocks import CeilingBlocks, CeilingKernel, step_time_warning
from measure.timing.stopping import Protocol, Timing, steadiness_warning
from results.records.cell import Sample
from tests.support.fakes.hosts import Host


def lasting(host: Host, lasts_s: float) -> Callable[[], None]:
    """A function that takes this time of the host."""

    def run() -> None:
        host.now_s += lasts_s

    return run


def measured(step_s: float, *kernels_s: float) -> list[Sample]:
    host, protocol = Host(), Protocol.for_device("cpu")
    kernels = [CeilingKernel(f"unit{i}", f"kernel{i}", 100, lasting(host, s)) for i, s in enumerate(kernels_s)]
    with CeilingBlocks(kernels, host, protocol) as ceiling:
        timing = measure_blocks(lasting(host, step_s), host, protocol, step_s, ceiling)
    assert timing.summary.mean == pytest.approx(step_s)
    return blocks_in_order(WarmUp([], steady=True), timing, ceiling.samples)


def test_kernels_are_before_and_after_every_other_block() -> None:
    blocks = measured(0.5, 0.001, 0.002)
    assert [(block.part, block.unit) for block in blocks[:12]] == [
        ("ceiling", "unit0"), ("ceiling", "unit1"), ("measure", ""),
        ("measure", ""), ("ceiling", "unit0"), ("ceiling", "unit1"),
        ("ceiling", "unit0"), ("ceiling", "unit1"), ("measure", ""),
        ("measure", ""), ("ceiling", "unit0"), ("ceiling", "unit1"),
    ]  # fmt: skip
    parts = [block.part for block in blocks]
    assert parts.count("ceiling") == 2 * parts.count("measure")


def test_a_kernels_block_lasts_a_fifth_of_a_steps_block() -> None:
    """A fifth of 0.3 s with 5 % to spare: 61 calls of 1.04 ms, of 100 FLOP; one of 0.1 s."""
    short, long = measured(0.3, 0.00104, 0.1)[:2]
    assert (short.steps, short.flop, short.kernel) == (61, 6100, "kernel0")
    assert short.wall_s == pytest.approx(61 * 0.00104)
    assert (long.steps, long.flop, long.wall_s) == (1, 100, pytest.approx(0.1))


def test_the_call_that_finds_the_steps_data_in_the_caches_is_in_no_block() -> None:
    """A call takes 1 ms, and 50 ms right after a step: each block has the time of the later ones."""
    host, protocol, cold = Host(), Protocol.for_device("cpu"), [True]

    def step() -> None:
        host.now_s += 0.5
        cold[0] = True

    def call() -> None:
        host.now_s += 0.05 if cold[0] else 0.001
        cold[0] = False

    with CeilingBlocks([CeilingKernel("fp32", "kernel", 100, call)], host, protocol) as ceiling:
        measure_blocks(step, host, protocol, 0.5, ceiling)
    assert [block.wall_s / block.steps for block in ceiling.samples] == pytest.approx([0.001] * len(ceiling.samples))


def test_memory_that_a_kernel_takes_from_the_step_is_taken_in_the_warm_up() -> None:
    """The kernel takes what the step freed, once; the next step then takes 1 s, not 0.6 s: no measured one does."""
    host, protocol, held = Host(), Protocol.for_device("cpu"), {"step"}

    def step() -> None:
        host.now_s += 0.6 if "step" in held else 1.0
        held.add("step")

    def call() -> None:
        host.now_s += 0.001
        if "kernel" not in held:
            held.remove("step")
            held.add("kernel")

    with CeilingBlocks([CeilingKernel("fp32", "kernel", 100, call)], host, protocol) as ceiling:
        warm = warm_up(step, host, protocol, interleaved=ceiling)
        timing = measure_blocks(step, host, protocol, warm.step_s, ceiling)
    assert [block.wall_s for block in warm.blocks] == pytest.approx([0.6, 1.0, 0.6, 0.6])
    assert [block.wall_s for block in timing.blocks] == pytest.approx([0.6] * len(timing.blocks))
    assert all(block.start_s > timing.window[0] - 0.2 for block in ceiling.samples), "first calls are in no sample"


class Noisy:
    """What takes times of the host one after the other, from a list that repeats."""

    def __init__(self, host: Host, *times_s: float) -> None:
        self._host, self._times_s = host, itertools.cycle(times_s)

    def __call__(self) -> None:
        self._host.now_s += next(self._times_s)


def timed_beside(kernel_s: tuple[float, ...], step_s: tuple[float, ...] = (0.5,)) -> tuple[Timing, list[Sample]]:
    host, protocol = Host(), Protocol.for_device("cpu")
    kernels = [CeilingKernel("fp32", "kernel", 100, Noisy(host, *kernel_s))]
    with CeilingBlocks(kernels, host, protocol) as ceiling:
        timing = measure_blocks(Noisy(host, *step_s), host, protocol, step_s[0], ceiling)
    return timing, ceiling.samples


def test_measuring_goes_on_until_the_ratio_is_narrow_too():
    """Steps are equal, and their own interval has no width; kernels of one call of 0.1 s scatter by 5 %."""
    steady, _ = timed_beside((0.1,))
    timing, samples = timed_beside((0.095, 0.105, 0.1, 0.106, 0.094))
    assert (steady.status, len(steady.blocks)) == ("ok", 5)
    assert timing.status == "ok"
    assert len(timing.blocks) > 5
    widths = [
        paired_ceiling((*timing.blocks[:n], *samples[:n]), BATCHES).half_width_ratio
        for n in range(5, len(timing.blocks))
    ]
    assert all(width > 0.03 for width in widths), "it would have ended there"
    assert paired_ceiling((*timing.blocks, *samples), BATCHES).half_width_ratio <= 0.03


def test_a_machine_that_wanders_has_a_utilization_but_no_step_time() -> None:
    """Steps and calls take up to a half longer, slowly more and less; a pair of them by the same factor."""
    host, protocol = Host(), Protocol.for_device("cpu")

    def wandering(lasts_s: float) -> Callable[[], None]:
        def run() -> None:
            host.now_s += lasts_s * (1.25 + 0.25 * math.sin(host.now_s / 2))

        return run

    step, call = wandering(0.5), wandering(0.01)
    with CeilingBlocks([CeilingKernel("fp32", "kernel", 100, call)], host, protocol) as ceiling:
        timing = measure_blocks(step, host, protocol, 0.5, ceiling)
    assert timing.status == "ok"
    assert timing.summary.half_width_ratio > 0.03
    assert step_time_warning(timing, protocol).startswith(
        f"step_time: its own interval is ±{timing.summary.half_width_ratio:.2%}, wider than ±3.00%"
    )
    alone = measure_blocks(step, host, protocol, 0.5)
    assert (alone.status, step_time_warning(alone, protocol)) == ("not_converged", "")
    pairs = paired_ceiling((*timing.blocks, *ceiling.samples), BATCHES)
    assert steadiness_warning(timing, pairs) == (
        "unsteady: 4 of 11 blocks are far from the others, and decide the mean by their number: the interval of the "
        "paired utilization may be too narrow"
    )
    steady, _ = timed_beside((0.1,))
    assert step_time_warning(steady, protocol) == steadiness_warning(steady, None) == ""
