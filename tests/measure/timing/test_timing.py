"""Definition, law, injected fault: blocks, warm-up, stopping and phases on a simulated device of known times."""

import gc
import itertools
from dataclasses import replace

import numpy as np
import pytest

from measure.timing.blocks import measure_blocks, measure_phases, measure_stretch, warm_up
from measure.timing.clocks import clock_for
from measure.timing.stopping import Protocol, Timing, step_time_s
from results.errors import Inconsistent
from results.records.cell import Sample
from tests.measure.timing.fake_clock import FakeClock
from tests.support import collector


class Steps:
    """A step that issues (host_s, device_s) pairs, from a list that repeats its last one."""

    def __init__(self, clock: FakeClock, *costs: tuple[float, float]) -> None:
        self.clock = clock
        self.costs = itertools.chain(costs, itertools.repeat(costs[-1]))
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        self.clock.issue(*next(self.costs))


CUDA = Protocol.for_device("cuda")
CPU = Protocol.for_device("cpu")


def timed(*costs: tuple[float, float], step_s: float, protocol: Protocol = CUDA, has_device: bool = True) -> Timing:
    clock = FakeClock(has_device)
    return measure_blocks(Steps(clock, *costs), clock, protocol, step_s=step_s)


# --- protocol ---


# --- one block ---


def test_a_block_is_two_events_and_one_synchronise():
    # the host needs 1 ms, the device 10 ms a step: K = ceil(1.05 * 0.2 / 0.01) = 21
    clock = FakeClock()
    step = Steps(clock, (0.001, 0.01))
    timing = measure_blocks(step, clock, CUDA, step_s=0.01)
    block = timing.blocks[0]
    assert (block.part, block.phase, block.steps) == ("measure", "", 21)
    assert clock.synchronised == len(timing.blocks)
    assert block.device_s == pytest.approx(0.21)  # the lead-in keeps the queue filled: 21 * 10 ms exactly
    assert timing.summary.mean == pytest.approx(0.01)
    # issued in 21 ms, after a lead-in step of 1 ms + 10 ms on the device: 0.21 + 0.01 of work from 1 ms on
    assert block.wall_s == pytest.approx(0.22)
    assert block.sync_wait_s == pytest.approx(0.22 - 0.021)
    assert timing.host_bound is False
    assert timing.sync_wait_ratio == pytest.approx(19.9)


def test_a_device_that_waits_for_its_host_is_host_bound():
    # the host needs 10 ms, the device 2 ms: a step takes 10 ms, event time shows no gap, the last wait is 2 ms
    for device_s, ratio in ((0.0004, 0.04), (0.0006, 0.06)):
        timing = timed((0.010, device_s), step_s=0.01)
        assert timing.summary.mean == pytest.approx(0.01)
        assert timing.sync_wait_ratio == pytest.approx(ratio)
        assert timing.host_bound is (ratio < 0.05)


def test_a_device_clock_that_stands_still_is_a_contradiction():
    with pytest.raises(Inconsistent, match="device time to pass"):
        timed((0.0, 0.0), step_s=0.01)


# --- stopping ---


def test_a_steady_step_stops_at_the_minimum():
    timing = timed((0.001, 0.01), step_s=0.01)
    # 5 s of blocks of 0.21 s: 24 (5.04 s)
    assert len(timing.blocks) == 24
    assert (timing.status, timing.reason) == ("ok", "")
    assert len(timed((0.001, 2.0), step_s=2.0).blocks) == 10  # 2 s each: the count decides


def test_a_noisy_step_goes_on_until_its_interval_is_narrow_enough():
    rng = np.random.default_rng(0)
    clock = FakeClock(has_device=False)
    # sigma 10 % in each block of one step: 2.0 * 10 % / sqrt(n) <= 3 % at about n = 45, some earlier by luck; with r
    # raised by 0.5 / sqrt(n) = 0.07, n * 0.93 / 1.07 = 45 at about n = 52, and more where r came out above 0
    steps = Steps(clock, *[(0.0, float(s)) for s in 0.5 * (1 + 0.1 * rng.standard_normal(300))])
    told: list[str] = []
    timing = measure_blocks(steps, clock, CPU, step_s=0.5, report=told.append)
    assert timing.status == "ok"
    assert told[6].startswith(f"block 7, ±{100 * _width(timing.blocks[:7]):.2g} %, stops at ±3 %, at most 116 s more")
    assert 15 <= len(timing.blocks) <= 75
    assert timing.summary.half_width_ratio <= 0.03
    before = timing.blocks[:-1]
    assert len(before) < 5 or _width(before) > 0.03  # and no block more than needed


def _width(blocks: tuple[Sample, ...]) -> float:
    from analysis.stats.summary import summarise

    return summarise([step_time_s(b) for b in blocks], rule=CPU.interval_rule).half_width_ratio


def test_a_wild_step_is_not_converged_at_the_cap():
    clock = FakeClock()
    timing = measure_blocks(
        Steps(clock, *[(0.0, 0.5), (0.0, 1.5)] * 300), clock, replace(CUDA, lead_in_steps=0, cap_s=20.0), step_s=1.0
    )
    assert timing.status == "not_converged"
    assert "stopped at the cap of 20 s" in timing.reason
    assert "wider than ±0.50%" in timing.reason
    assert clock.now_s - 1000 <= 20.0
    # every block is there and the mean is that of all of them
    assert timing.summary.mean == pytest.approx(
        sum(b.device_s for b in timing.blocks) / sum(b.steps for b in timing.blocks)
    )


@pytest.mark.parametrize(
    ("step_s", "blocks", "said", "within_60_s"),
    [
        (4.0, 14, "the cap of 60 s", 14),  # 7 · (2 + 6) = 56 s; another 6 s would be too long
        (7.0, 12, "12 blocks, after the cap of 60 s,", 8),  # 6 · (3.5 + 10.5) = 84 s, and 4 · 14 = 56 s
        (11.0, 10, "the cap of 120 s", 4),  # 5 · (5.5 + 16.5) = 110 s, and 2 · 22 = 44 s
    ],
)
def test_a_step_of_seconds_has_twice_the_time_for_twelve_blocks(
    step_s: float, blocks: int, said: str, within_60_s: int
) -> None:
    """Steps of which every other one takes three times as long."""
    for protocol, most, cap in ((CPU, blocks, said), (replace(CPU, cap_blocks=0), within_60_s, "the cap of 60 s")):
        wild = [(0.0, 0.5 * step_s), (0.0, 1.5 * step_s)] * 20
        timing = timed(*wild, step_s=step_s, protocol=protocol, has_device=False)
        assert timing.status == "not_converged"
        assert len(timing.blocks) == most
        assert timing.reason.startswith(f"stopped at {cap} with ")


# --- warm-up ---


def test_warm_up_ends_when_two_blocks_agree_and_the_minimum_is_reached():
    clock = FakeClock()
    warm = warm_up(Steps(clock, (0.0, 30.0), (0.0, 0.1)), clock, CUDA)
    blocks, steady, _ = warm
    assert steady
    first = blocks[0]  # it compiles: outside of the cap
    assert (first.steps, first.start_s, first.wall_s, first.device_s, first.sync_wait_s) == (
        1,
        1000.0,
        30.0,
        30.0,
        30.0,
    )
    # then 1 step (K of 0.5 s at 30 s a step), then 6 = ceil(0.525 / 0.1) each: 0.1 + 5 * 0.6 = 3.1 s >= 3 s
    assert [b.steps for b in blocks] == [1, 1, 6, 6, 6, 6, 6]
    assert warm.step_s == pytest.approx(0.1)
    assert {b.part for b in blocks} == {"warmup"}


def test_warm_up_waits_for_a_falling_step_time():
    # 40 steps that get 2 % faster every second step, then constant; blocks of 2 or 3 steps
    clock = FakeClock()
    times = [(0.0, 0.3 * 0.98 ** (i // 2)) for i in range(40)]
    falling, constant = warm_up(Steps(clock, *times), clock, CUDA), warm_up(Steps(clock, (0.0, 0.3)), clock, CUDA)
    assert falling.steady
    assert sum(b.steps for b in falling.blocks) > 40 > sum(b.steps for b in constant.blocks) >= 10
    assert falling.step_s == pytest.approx(times[-1][1])


# --- a stretch ---


def stretch(clock: FakeClock, lengths: list[int], *costs: tuple[float, float]) -> list[Sample]:
    return measure_stretch(Steps(clock, *costs), clock, lengths, "epoch")


def test_on_a_device_each_segment_has_its_own_time_and_one_synchronise_ends_all():
    """1 ms of host and 10 ms of device a step; the last step, a smaller batch, has 4 ms."""
    clock = FakeClock()
    blocks = stretch(clock, [3, 3, 2], *[(0.001, 0.01)] * 7, (0.001, 0.004))
    assert [(b.part, b.phase, b.steps, b.work) for b in blocks] == [("measure", "", n, "epoch") for n in (3, 3, 2)]
    # the device waits 1 ms for its first step; 7 of 10 ms and one of 4 follow without a gap
    assert [b.device_s for b in blocks] == pytest.approx([0.031, 0.03, 0.014])
    assert sum(b.wall_s for b in blocks) == pytest.approx(0.075), "the host's time from end to end"
    assert [b.start_s for b in blocks] == pytest.approx([1000.0, 1000.003, 1000.006])
    assert [b.sync_wait_s for b in blocks] == [None, None, pytest.approx(0.075 - 0.008)]
    assert clock.synchronised == 2


def test_work_from_before_a_stretch_is_not_in_it_and_a_device_that_did_nothing_is_a_contradiction():
    clock = FakeClock()
    clock.issue(0.0, 5.0)
    (block,) = stretch(clock, [1], (0.001, 0.01))
    assert block.device_s == pytest.approx(0.011)
    assert block.start_s == pytest.approx(1005.0)
    with pytest.raises(Inconsistent, match="device time to pass in 2 steps, got 0"):
        stretch(FakeClock(), [2], (0.0, 0.0))


# --- phases ---

PHASES = [("optimizer", 0.2), ("forward", 1.0), ("loss", 0.1), ("backward", 2.0), ("optimizer", 0.5)]


def announced(clock: FakeClock, host_s: float, closes: bool = True):
    def step(mark=lambda phase: None) -> None:
        clock.issue(host_s, 0.2)  # zero_grad
        for phase, device_s in PHASES[1:]:
            mark(phase)
            clock.issue(host_s, device_s)
        if closes:
            mark("end")

    return step


@pytest.mark.parametrize("has_device", [True, False])
@pytest.mark.parametrize("closes", [True, False])
def test_phases_are_split_and_conserved(has_device, closes):
    clock = FakeClock(has_device)
    blocks = measure_phases(announced(clock, 0.0, closes), clock, replace(CUDA, block_s=10.0), step_s=3.8)
    first = {b.phase: b for b in blocks[:4]}
    assert list(first) == ["optimizer", "forward", "loss", "backward"]
    assert {b.steps for b in blocks} == {3}  # ceil(10.5 / 3.8)
    seconds = {p: step_time_s(b) for p, b in first.items()}
    assert seconds == pytest.approx({"optimizer": 0.7, "forward": 1.0, "loss": 0.1, "backward": 2.0})
    assert sum(seconds.values()) == pytest.approx(3.8)
    assert {b.part for b in blocks} == {"phase"}
    assert {b.device_s is None for b in blocks} == {not has_device}


# --- the collector ---


@pytest.fixture
def thawing(monkeypatch):
    """Unfreezing as it is without pytest: `tests/support/collector.py` keeps what it froze."""
    monkeypatch.setattr(gc, "unfreeze", collector.unfreeze)
    yield
    collector.freeze()


@pytest.mark.usefixtures("thawing")
def test_the_collector_is_off_inside_blocks_and_left_as_found():
    clock = FakeClock()
    seen = []

    def step():
        seen.append(gc.isenabled())
        clock.issue(0.001, 0.01)

    measure_blocks(step, clock, CUDA, step_s=0.01)
    assert gc.isenabled()
    assert gc.get_freeze_count() < 1000
    assert seen
    assert not any(seen)


# --- real clocks ---


@pytest.mark.gpu
def test_cuda_events_agree_with_the_wall_over_a_long_block():
    """Needs a CUDA device. A matrix product large enough that gaps do not matter: device time within 3 % of wall."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    a = torch.randn(4096, 4096, device="cuda")
    clock = clock_for("cuda")
    protocol = Protocol.for_device("cuda", quick=True)
    warm = warm_up(lambda: a @ a, clock, protocol)
    timing = measure_blocks(lambda: a @ a, clock, protocol, warm.step_s)
    block = timing.blocks[-1]
    assert block.device_s == pytest.approx(block.wall_s * block.steps / (block.steps + 1), rel=0.03)
    assert timing.host_bound is False


def test_without_device_time_the_wall_is_the_time():
    timing = timed((0.0, 0.5), step_s=0.5, protocol=CPU, has_device=False)
    block = timing.blocks[0]
    assert (block.steps, block.device_s, block.sync_wait_s) == (1, None, None)
    assert block.wall_s == pytest.approx(0.5)
    assert step_time_s(block) == block.wall_s
    assert (timing.sync_wait_ratio, timing.host_bound) == (None, None)
    assert timing.status == "ok"
