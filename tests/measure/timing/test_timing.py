"""Blocks, warm-up, stopping and phases on a simulated device whose every second is known."""

from __future__ import annotations

import dataclasses
import gc
import itertools
from dataclasses import replace

import numpy as np
import pytest

from measure.timing.blocks import measure_blocks, warm_up
from measure.timing.clocks import clock_for
from measure.timing.phases import measure_phases, measure_stretch
from measure.timing.protocols import CPU_PROTOCOL, CUDA_PROTOCOL, Protocol
from measure.timing.stopping import step_time_s
from results.errors import Inconsistent
from results.records.samples import Sample
from tests.support import collector


class FakeClock:
    """A host, and a device that works off a queue in order. Reading the time costs nothing."""

    def __init__(self, has_device: bool = True) -> None:
        self.now_s = 1000.0
        self.free_s = 0.0  # when the device will have done what it was given
        self.has_device = has_device
        self.synchronised = 0

    def issue(self, host_s: float, device_s: float) -> None:
        """Host spends host_s, then the device has device_s more to do."""
        self.now_s += host_s
        self.free_s = max(self.free_s, self.now_s) + device_s
        if not self.has_device:
            self.now_s = self.free_s

    def wall_s(self) -> float:
        return self.now_s

    def event(self) -> float:
        return max(self.free_s, self.now_s)

    def between_s(self, start: float, end: float) -> float | None:
        return end - start if self.has_device else None

    def synchronize(self) -> None:
        self.synchronised += 1
        self.now_s = max(self.now_s, self.free_s)


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


# --- protocol ---


def test_the_protocol_of_a_gpu_is_the_documented_one():
    assert (CUDA.block_s, CUDA.min_blocks, CUDA.min_time_s, CUDA.target_ci_ratio, CUDA.cap_s) == (0.2, 10, 5, 0.005, 60)
    assert (CUDA.warm_min_steps, CUDA.warm_min_s, CUDA.warm_block_s, CUDA.warm_tolerance_ratio) == (10, 3, 0.5, 0.01)
    assert Protocol.for_device("cuda:1") == CUDA
    assert CPU.target_ci_ratio == 0.03
    assert CPU.min_blocks < CUDA.min_blocks
    assert CPU.lead_in_steps == 0


def test_the_time_left_shrinks_the_caps_and_nothing_else():
    short = Protocol.for_device("cuda", time_left_s=8.5)  # a tenth of 60 + 20 + 5
    assert (short.cap_s, short.warm_cap_s, short.phase_cap_s) == pytest.approx((6, 2, 0.5))
    assert short.longest_s == pytest.approx(8.5)
    assert (short.epoch_cap_s, short.profile_cap_s) == pytest.approx((2, 0.2))
    whole = {"cap_s": 60, "warm_cap_s": 20, "phase_cap_s": 5, "epoch_cap_s": 20, "profile_cap_s": 2, "cap_blocks": 12}
    assert replace(short, **whole) == CUDA
    assert Protocol.for_device("cuda", time_left_s=1000) == CUDA


@pytest.mark.parametrize(
    ("works", "more_s"),
    [
        ((), 0.0),
        (("batch",), 2.0),  # under the profiler
        (("one",), 2.0 + (20 + 60) / 3),  # a third of the caps for warming up and for blocks
        (("one", "batch", "last", "epoch"), 3 * 2.0 + 2 * (20 + 60) / 3 + 20.0),
    ],
)
def test_the_works_of_a_cell_are_in_its_caps(works, more_s):
    protocol = Protocol.for_device("cuda", works=works)
    assert protocol.longest_s == pytest.approx(CUDA.longest_s + more_s)
    assert Protocol.for_device("cuda", works=works, time_left_s=10.0).longest_s == pytest.approx(10.0)


def test_another_work_stops_by_the_same_rules_but_sooner():
    passed = Protocol.for_device("cpu", works=("one",)).for_pass()
    assert (passed.warm_cap_s, passed.cap_s, passed.warm_min_s) == pytest.approx((5 / 3, 20, 1 / 3))
    assert (passed.phase_blocks, passed.phase_cap_s, passed.works) == (0, 0, ())
    for rule in ("target_ci_ratio", "min_blocks", "min_time_s", "block_s", "warm_tolerance_ratio", "lead_in_steps"):
        assert getattr(passed, rule) == getattr(CPU, rule)


@pytest.mark.parametrize("options", [{"target_ci_ratio": 0.0}, {"target_ci_ratio": 5.0}, {"time_left_s": -1.0}])
def test_impossible_rules_are_refused(options):
    with pytest.raises(ValueError, match="expected a"):
        Protocol.for_device("cpu", **options)


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
    clock = FakeClock()
    timing = measure_blocks(Steps(clock, (0.010, 0.0004)), clock, CUDA, step_s=0.01)
    assert timing.summary.mean == pytest.approx(0.01)
    assert timing.sync_wait_ratio == pytest.approx(0.04)
    assert timing.host_bound is True
    slower = FakeClock()
    timing = measure_blocks(Steps(slower, (0.010, 0.0006)), slower, CUDA, step_s=0.01)
    assert timing.sync_wait_ratio == pytest.approx(0.06)
    assert timing.host_bound is False


def test_without_device_time_the_wall_is_the_time():
    clock = FakeClock(has_device=False)
    timing = measure_blocks(Steps(clock, (0.0, 0.5)), clock, CPU, step_s=0.5)
    block = timing.blocks[0]
    assert (block.steps, block.device_s, block.sync_wait_s) == (1, None, None)
    assert block.wall_s == pytest.approx(0.5)
    assert step_time_s(block) == block.wall_s
    assert (timing.sync_wait_ratio, timing.host_bound) == (None, None)
    assert timing.status == "ok"


def test_a_device_clock_that_stands_still_is_a_contradiction():
    clock = FakeClock()
    with pytest.raises(Inconsistent, match="device time to pass"):
        measure_blocks(lambda: None, clock, CUDA, step_s=0.01)


# --- stopping ---


def test_a_steady_step_stops_at_the_minimum():
    clock = FakeClock()
    timing = measure_blocks(Steps(clock, (0.001, 0.01)), clock, CUDA, step_s=0.01)
    # 5 s of blocks of 0.21 s: 24 (5.04 s)
    assert len(timing.blocks) == 24
    assert (timing.status, timing.reason) == ("ok", "")
    clock = FakeClock()
    timing = measure_blocks(Steps(clock, (0.001, 2.0)), clock, CUDA, step_s=2.0)
    assert len(timing.blocks) == 10  # 2 s each: the count decides


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


def test_a_step_of_many_seconds_costs_few_steps_and_says_so():
    clock = FakeClock(has_device=False)
    step = Steps(clock, (0.0, 33.0))
    timing = measure_blocks(step, clock, CPU, step_s=33.0)
    # 33, 66, 99 s; a fourth would end at 132 s, over twice the cap of 60 s
    assert step.calls == 3
    assert timing.status == "not_converged"
    assert timing.reason == "stopped at the cap of 120 s with 3 of at least 5 blocks"


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
        clock = FakeClock(has_device=False)
        wild = Steps(clock, *[(0.0, 0.5 * step_s), (0.0, 1.5 * step_s)] * 20)
        timing = measure_blocks(wild, clock, protocol, step_s=step_s)
        assert timing.status == "not_converged"
        assert len(timing.blocks) == most
        assert timing.reason.startswith(f"stopped at {cap} with ")


def test_a_wrong_estimate_of_the_step_is_put_right_after_one_block():
    clock = FakeClock()
    timing = measure_blocks(Steps(clock, (0.0001, 0.0103)), clock, CUDA, step_s=0.1)
    assert [b.steps for b in timing.blocks[:3]] == [3, 21, 21]  # ceil(0.21 / 0.1), ceil(0.21 / 0.0103)
    clock = FakeClock()
    timing = measure_blocks(Steps(clock, (0.0001, 0.0103)), clock, CUDA, step_s=0.00103)
    assert [b.steps for b in timing.blocks[:3]] == [204, 21, 21]
    assert timing.summary.mean == pytest.approx(0.0103)


def test_without_an_estimate_one_untimed_step_gives_it():
    clock = FakeClock()
    step = Steps(clock, (0.001, 0.05))
    timing = measure_blocks(step, clock, CUDA)
    assert timing.blocks[0].steps == 5  # ceil(0.21 / 0.051)
    assert step.calls == 1 + sum(b.steps + 1 for b in timing.blocks)


# --- warm-up ---


def test_warm_up_ends_when_two_blocks_agree_and_the_minimum_is_reached():
    clock = FakeClock()
    warm = warm_up(Steps(clock, (0.0, 30.0), (0.0, 0.1)), clock, CUDA)
    blocks, steady, _ = warm
    assert steady
    # the first step compiles: outside of the cap
    names = (
        "run_wait_s",
        "involuntary_switches",
        "steal_s",
        "throttled_s",
        "pressure_s",
        "group_pressure_s",
        "page_faults",
        "system_s",
    )
    unknown = dict.fromkeys(names)  # this machine's own
    expected = Sample(part="warmup", steps=1, start_s=1000.0, wall_s=30.0, device_s=30.0, sync_wait_s=30.0)
    assert dataclasses.replace(blocks[0], **unknown) == expected
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


def test_warm_up_that_never_settles_stops_at_its_cap():
    clock = FakeClock()
    steps = Steps(clock, *[(0.0, s) for i in range(100) for s in [0.5 + 0.1 * (i % 2)] * 1])
    blocks, steady, _ = warm_up(steps, clock, replace(CUDA, warm_block_s=0.4))
    assert not steady
    assert clock.now_s - 1000 - blocks[0].wall_s <= CUDA.warm_cap_s


# --- a stretch ---


class TestStretch:
    """An epoch in segments: nothing waits between them, and together they are the whole."""

    def stretch(self, clock, lengths, *costs):
        self.step = Steps(clock, *costs)
        return measure_stretch(self.step, clock, lengths, "epoch")

    def test_on_a_device_each_segment_has_its_own_time_and_one_synchronise_ends_all(self):
        # 1 ms of host and 10 ms of device a step; the last step, a smaller batch, has 4 ms
        clock = FakeClock()
        blocks = self.stretch(clock, [3, 3, 2], *[(0.001, 0.01)] * 7, (0.001, 0.004))
        assert [(b.part, b.phase, b.steps, b.work) for b in blocks] == [("measure", "", n, "epoch") for n in (3, 3, 2)]
        # the device waits 1 ms for its first step; 7 of 10 ms and one of 4 follow without a gap
        assert [b.device_s for b in blocks] == pytest.approx([0.031, 0.03, 0.014])
        assert sum(b.wall_s for b in blocks) == pytest.approx(0.075), "the host's time from end to end"
        assert [b.start_s for b in blocks] == pytest.approx([1000.0, 1000.003, 1000.006])
        assert [b.sync_wait_s for b in blocks] == [None, None, pytest.approx(0.075 - 0.008)]
        assert clock.synchronised == 2
        assert self.step.calls == 8

    def test_work_from_before_is_not_in_it(self):
        clock = FakeClock()
        clock.issue(0.0, 5.0)
        (block,) = self.stretch(clock, [1], (0.001, 0.01))
        assert block.device_s == pytest.approx(0.011)
        assert block.start_s == pytest.approx(1005.0)

    def test_a_device_that_did_nothing_is_a_contradiction(self):
        with pytest.raises(Inconsistent, match="device time to pass in 2 steps, got 0"):
            self.stretch(FakeClock(), [2], (0.0, 0.0))


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


def test_the_phase_pass_keeps_its_cap():
    clock = FakeClock()
    few = measure_phases(announced(clock, 0.0), clock, replace(CUDA, phase_cap_s=20.0, lead_in_steps=0), step_s=3.8)
    assert len(few) == 4 * 5  # 5 blocks of 3.8 s are 19 s
    fewer = measure_phases(announced(clock, 0.0), clock, replace(CUDA, phase_cap_s=18.0, lead_in_steps=0), step_s=3.8)
    assert len(fewer) == 4 * 4
    one = measure_phases(announced(clock, 0.0), clock, replace(CUDA, phase_cap_s=0.0), step_s=3.8)
    assert len(one) == 4


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


@pytest.mark.gpu
def test_a_step_that_waits_for_its_result_is_host_bound_on_cuda():
    """Needs a CUDA device. Thousands of tiny kernels: the device is always done before the host."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    a = torch.zeros(8, device="cuda")

    def step():
        for _ in range(2000):
            a.add_(1.0)

    clock = clock_for("cuda")
    timing = measure_blocks(step, clock, Protocol.for_device("cuda", quick=True))
    assert timing.host_bound is True


def test_quick_divides_every_time_by_five():
    for full, device in ((CUDA_PROTOCOL, "cuda"), (CPU_PROTOCOL, "cpu")):
        quick = Protocol.for_device(device, quick=True)
        assert quick.cap_s == full.cap_s / 5
        assert quick.block_s == full.block_s / 5
        assert quick.longest_s == pytest.approx(full.longest_s / 5)
        assert 3 <= quick.min_blocks < full.min_blocks
        assert quick.target_ci_ratio == full.target_ci_ratio


def test_the_least_of_a_cell_is_that_of_its_own_step_and_of_each_work_that_is_timed():
    # CPU: 1 s of warming up and 2 s of blocks; another work a third of a second and 2 s
    assert CPU.least_s == 3.0
    assert Protocol.for_device("cpu", works=("one", "batch")).least_s == pytest.approx(3.0 + 1 / 3 + 2)
    assert Protocol.for_device("cpu", works=("batch", "last", "epoch")).least_s == pytest.approx(3.0 + 1 / 3 + 2)


def test_a_cap_that_leaves_time_for_others_does_not_grow_with_the_step() -> None:
    for short in (
        Protocol.for_device("cpu", quick=True),
        Protocol.for_device("cpu", time_left_s=10.0),
        CPU.for_pass(),
    ):
        assert short.cap_with_s(1) == short.cap_s < 60
    assert Protocol.for_device("cpu", time_left_s=1000.0).cap_with_s(11) == 120
    assert CPU.cap_with_s(12) == 60


def test_warm_up_of_a_slow_cpu_step_is_two_steps():
    clock = FakeClock(has_device=False)
    step = Steps(clock, (0.0, 9.0))
    blocks, steady, _ = warm_up(step, clock, CPU)
    assert step.calls == len(blocks) == 2
    assert not steady
