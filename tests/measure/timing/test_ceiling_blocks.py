"""Blocks of kernels between blocks of a step, on a simulated host: their order, their number of calls, their FLOP."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from measure.timing.blocks import WarmUp, blocks_in_order, measure_blocks
from measure.timing.ceiling_blocks import CeilingBlocks, CeilingKernel
from measure.timing.protocols import Protocol
from results.records import Sample
from tests.support.fakes.hosts import Host


def lasting(host: Host, lasts_s: float) -> Callable[[], None]:
    """A function that takes this time of the host."""

    def run() -> None:
        host.now_s += lasts_s

    return run


def measured(step_s: float, *kernels_s: float) -> list[Sample]:
    host, protocol = Host(), Protocol.for_device("cpu")
    kernels = [CeilingKernel(f"unit{i}", f"kernel{i}", 100, lasting(host, s)) for i, s in enumerate(kernels_s)]
    with CeilingBlocks(kernels, host, protocol.block_s) as ceiling:
        timing = measure_blocks(lasting(host, step_s), host, protocol, step_s, ceiling.run)
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
    """A fifth of 0.2 s with 5 % to spare: 41 calls of 1.04 ms, of 100 FLOP; one of 0.1 s."""
    short, long = measured(0.2, 0.00104, 0.1)[:2]
    assert (short.steps, short.flop, short.kernel) == (41, 4100, "kernel0")
    assert short.wall_s == pytest.approx(41 * 0.00104)
    assert (long.steps, long.flop, long.wall_s) == (1, 100, pytest.approx(0.1))
