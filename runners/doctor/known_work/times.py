"""Known times: device events against the wall, planted sleeps, and intervals that must cover the mean of all blocks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from cleaning.facts.self_test import BLOCKS, CLOCK_STEP_HZ, EVENTS_RATIO, FEWEST_COVERED, REPEATS, SLEEP_RATIO
from measure.timing.clocks import clock_for
from results.errors import Unavailable
from runners.doctor.known_work.answers import CheckResult, DeviceUnderTest, within

FEWEST_BLOCKS, MOST_BLOCKS = 5, 10
"""For one whose wall time no other process of the host disturbs: device time that is too long must not be hidden by a
wall time that is, too."""
LONG_S = 0.5
"""Of a block that is long against whatever an event or a call adds."""
SLEEPS, CYCLES, PAUSE_S = (40, 80), 100_000, 0.001
"""A sleep and one twice as long, in units: cycles of the multiprocessors (2 and 4 ms, far above what a launch takes and
short enough to see an offset of a tenth of that), or seconds of the host."""


def long_product(asked: DeviceUnderTest) -> tuple[Callable[[], Any], int]:
    """A product that is long against its launch, and how many of them take LONG_S."""
    import torch

    side = 4096 if asked.is_cuda else 512
    a = torch.randn(side, side, device=asked.device)
    clock = clock_for(asked.device)
    for _ in range(3):
        a @ a
    clock.synchronize()
    begun_s = clock.wall_s()
    a @ a
    clock.synchronize()
    return lambda: a @ a, max(3, int(LONG_S / max(clock.wall_s() - begun_s, 1e-6)))


def events(asked: DeviceUnderTest) -> CheckResult:
    """Device time of a long block ÷ its wall time."""
    if not asked.is_cuda:
        raise Unavailable("a CPU has no time of its own beside the wall's")
    product, times = long_product(asked)
    most = 0.0
    for block in range(MOST_BLOCKS):  # whatever disturbs the host makes the wall's time longer, never shorter
        device_s, wall_s = _time_of(asked, product, times)
        most = max(most, (device_s or 0.0) / wall_s)
        if block + 1 >= FEWEST_BLOCKS and most >= 1 - EVENTS_RATIO:
            break
    words = f"device time ÷ wall time within {EVENTS_RATIO:.0%} of 1, the highest of up to {MOST_BLOCKS} blocks"
    return within(most, 1 - EVENTS_RATIO, 1 + EVENTS_RATIO, words, "events do not agree with the host's clock")


def sleep(asked: DeviceUnderTest) -> CheckResult:
    """A sleep twice as long ÷ a sleep, as this program's clock sees them."""
    import torch

    spin: Any = getattr(torch.cuda, "_sleep", None)
    if asked.is_cuda and spin is None:
        raise Unavailable("this torch has no kernel that sleeps")

    def seen_s(amount: int) -> float:
        sleeps = (lambda: spin(amount * CYCLES)) if asked.is_cuda else (lambda: time.sleep(amount * PAUSE_S))
        device_s, wall_s = _time_of(asked, sleeps, 1)
        return device_s or wall_s

    seen_s(10)
    short_s, long_s = (min(seen_s(amount) for _ in range(5)) for amount in SLEEPS)
    why = "time is not proportional to what was slept"
    return within(long_s / short_s, 2 * (1 - SLEEP_RATIO), 2 * (1 + SLEEP_RATIO), f"2 within {SLEEP_RATIO:.0%}", why)


def intervals(asked: DeviceUnderTest) -> CheckResult:
    """How many of eight 95 % intervals cover the mean of all blocks, counted in cycles where the device says its clock.

    A card that lowers its clock in the middle is honest. A clock that moves is only known to a step of it.
    """
    from analysis.stats.summary import summarise

    product, times = long_product(asked)
    blocks_s, clocks_hz = list[float](), list[float]()
    with _polled_clock(asked) as poll:
        for _ in range(REPEATS * BLOCKS):
            device_s, wall_s = _time_of(asked, product, max(1, times // 20), lambda: clocks_hz.extend(poll()))
            blocks_s.append(device_s or wall_s)
    whole_hz = fmean(clocks_hz) if len(clocks_hz) == len(blocks_s) else 0.0
    moved = whole_hz > 0 and min(clocks_hz) < max(clocks_hz)
    means_s = [time_s * hz / whole_hz for time_s, hz in zip(blocks_s, clocks_hz, strict=True)] if moved else blocks_s
    whole_s, slack_s = fmean(means_s), (CLOCK_STEP_HZ / whole_hz if moved else 1e-5) * fmean(means_s)
    groups = [summarise(means_s[i * BLOCKS : (i + 1) * BLOCKS]) for i in range(REPEATS)]
    covered = sum((g.low or g.mean) - slack_s <= whole_s <= (g.high or g.mean) + slack_s for g in groups)
    words = f"at least {FEWEST_COVERED} of {REPEATS}{', at one clock' if moved else ''}"
    why = "times drift, or others use the device: intervals say too much"
    return within(covered, FEWEST_COVERED, REPEATS, words, why)


@contextlib.contextmanager
def _polled_clock(asked: DeviceUnderTest) -> Iterator[Callable[[], list[float]]]:
    """What gives the clock of the multiprocessors now, in Hz; an empty list where the device does not say it."""
    from measure.device.telemetry import open_device

    with contextlib.ExitStack() as stack:
        try:
            board = stack.enter_context(open_device(asked.device)) if asked.is_cuda else None
        except Unavailable:
            board = None

        def poll() -> list[float]:
            hz = board.poll().sm_clock_hz if board is not None else None
            return [float(hz)] if hz else []

        yield poll


def _time_of(
    asked: DeviceUnderTest, call: Callable[[], Any], times: int, meanwhile: Callable[[], object] = lambda: None
) -> tuple[float | None, float]:
    """Device time, None on a CPU, and wall time of so many calls. meanwhile: called while the device works."""
    clock = clock_for(asked.device)
    begun_s, first = clock.wall_s(), clock.event()
    for _ in range(times):
        call()
    last = clock.event()
    meanwhile()
    clock.synchronize()
    return clock.between_s(first, last), clock.wall_s() - begun_s
