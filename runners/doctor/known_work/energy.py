"""Energy by the board's counter against its own polled power × time."""

from __future__ import annotations

from analysis.devices.telemetry import mean_power_w
from cleaning.facts.self_test import ENERGY_RATIOS
from results.errors import Unavailable
from runners.doctor.known_work.answers import CheckResult, DeviceUnderTest, within

WARM_S, BUSY_S = 1.5, 3.0
"""Power is an average of up to a second: the device is busy for longer than that before it is looked at."""


def energy(asked: DeviceUnderTest) -> CheckResult:
    """Joules by the counter ÷ polled power × time, while products run."""
    from measure.device.telemetry import Sampler, open_device
    from measure.timing.clocks import clock_for
    from runners.doctor.known_work.times import long_product

    if not asked.is_cuda:
        raise Unavailable("no energy counter is read on a CPU")
    product, times = long_product(asked)
    clock = clock_for(asked.device)

    def work(seconds: float) -> None:
        until_s = clock.wall_s() + seconds
        while clock.wall_s() < until_s:
            for _ in range(max(1, times // 10)):
                product()
            clock.synchronize()

    with open_device(asked.device) as board, Sampler(board) as sampler:
        work(WARM_S)
        begun_s = clock.wall_s()
        work(BUSY_S)
        readings = sampler.between(begun_s, clock.wall_s())
        if sampler.fault:
            raise Unavailable(f"telemetry: {sampler.fault}")
    counted = [(reading.time_s, reading.energy_j) for reading in readings if reading.energy_j is not None]
    if len(counted) < 2:
        raise Unavailable("the board has no energy counter")
    (start_s, start_j), (end_s, end_j) = counted[0], counted[-1]
    power_w = mean_power_w(readings, start_s, end_s)
    if not power_w:
        raise Unavailable("the board reports no power")
    found = (end_j - start_j) / (power_w * (end_s - start_s))
    words = f"{ENERGY_RATIOS[0]:g} to {ENERGY_RATIOS[1]:g}"
    return within(found, *ENERGY_RATIOS, words, "the energy counter does not agree with the power")
